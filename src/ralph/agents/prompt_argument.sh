# Runs a program with its prompt, which comes on standard input, as the last argument.
# Linux takes at most 131,072 bytes in one argument. Ralph writes a longer prompt into the inbox (`MAX_ARGUMENT`), because many
# agents read only files of their workspace, and the program is told to read that file.
prompt=$(cat)
if [ "$(printf %s "$prompt" | wc -c)" -gt 120000 ]; then
  file=$RALPH_INBOX/prompt.md
  [ -f "$file" ] || { echo "the prompt is too long for an argument, and there is no $file" >&2; exit 1; }
  prompt="Read the file $file and follow it: it holds all of your instructions for this turn."
fi
exec "$@" "$prompt"
