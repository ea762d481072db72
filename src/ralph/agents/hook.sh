# Starts hook.py beside it where words of a person wait, and nothing where none do: agents run this after each use of a tool.
# sh hook.sh PYTHON AGENT:EVENT
for words in "$RALPH_WORDS"/*.txt; do
    [ -e "$words" ] && exec "$1" -S -I "${0%.sh}.py" "$2"
done
exit 0
