// Receives messages of the user inside the agent's process, as live_messages.py does for hooks.
import { readdirSync, readFileSync, renameSync, statSync } from "node:fs";
import { join } from "node:path";

// All messages that wait, the oldest first; empty if there are none. If several processes try at once, one gets them.
export function claimMessages(): string {
  const directory = process.env.RALPH_MESSAGES ?? "";
  let names: string[];
  try {
    names = readdirSync(directory).filter((name) => name.endsWith(".txt") && !name.startsWith("."));
  } catch {
    return "";
  }
  const taken: { age: bigint; text: string }[] = [];
  for (const name of names) {
    const claimed = join(directory, name.replace(/\.txt$/, ".received.hook"));
    try {
      renameSync(join(directory, name), claimed);
    } catch {
      continue;
    }
    taken.push({ age: statSync(claimed, { bigint: true }).mtimeNs, text: readFileSync(claimed, "utf8") });
  }
  taken.sort((one, other) => (one.age < other.age ? -1 : 1));
  return taken.map((message) => message.text).join("\n\n");
}
