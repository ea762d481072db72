// A plugin that runs inside OpenCode, passes on messages of the user while it works, and limits its retries.
import { claimMessages } from "./claim_messages.ts";

// OpenCode tries five times again, waits as long as its provider says, and has no setting for either.
const MAX_RETRIES = 2;
const MAX_WAIT_MS = 30_000;
// If its provider names no end, OpenCode waits 2, 5 and 9 seconds. That says nothing about when the limit ends.
const LONGEST_OWN_WAIT_MS = 12_000;

export const Ralph = async ({ client }: any) => {
  let session = "";
  const send = async () => {
    const text = session && claimMessages();
    if (text) await client.session.promptAsync({ path: { id: session }, body: { parts: [{ type: "text", text }] } });
  };
  setInterval(send, 200).unref?.();
  return {
    "chat.message": async (message: any) => { session ||= message.sessionID },
    event: async ({ event }: any) => {
      const status = event.type === "session.status" ? event.properties.status : {};
      if (status.type !== "retry") return;
      // Its own output does not report retries, so the plugin adds a line in the same format.
      const wait = status.next - Date.now();
      const ends = status.attempt > MAX_RETRIES || wait > MAX_WAIT_MS;
      const next = ends && wait <= LONGEST_OWN_WAIT_MS ? 0 : status.next;
      const retry = { attempt: status.attempt, message: status.message, next, ends };
      process.stdout.write(JSON.stringify({ type: "retry", timestamp: Date.now(), sessionID: session, retry }) + "\n");
      if (ends) await client.session.abort({ path: { id: session } });
    },
  };
};
