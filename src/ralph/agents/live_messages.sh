# Agents run this after each use of a tool. It starts live_messages.py, beside it, only if messages of the user wait.
# sh live_messages.sh PYTHON AGENT:EVENT
for message in "$RALPH_MESSAGES"/*.txt; do
    [ -e "$message" ] && exec "$1" -S -I "${0%.sh}.py" "$2"
done
exit 0
