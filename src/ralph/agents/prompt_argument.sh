# Runs a program with its prompt, which comes on standard input, as the last argument.
# Linux takes at most 131,072 bytes in one argument: a longer prompt goes into a file, and the program is told to read that.
# The file is in the inbox, because many agents read only files of their workspace, and Ralph empties the inbox.
prompt=$(cat)
if [ "$(printf %s "$prompt" | wc -c)" -gt 120000 ]; then
  file=$RALPH_INBOX/prompt.md
  printf '%s\n' "$prompt" > "$file" || exit 1
  prompt="Read the file $file and follow it: it holds all of your instructions for this turn."
fi
exec "$@" "$prompt"
