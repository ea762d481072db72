// A plugin that runs inside OpenCode and passes on messages of the user while it works.
import { claimMessages } from "./claim_messages.ts";

export const Ralph = async ({ client }: any) => {
  let session = "";
  const send = async () => {
    const text = session && claimMessages();
    if (text) await client.session.promptAsync({ path: { id: session }, body: { parts: [{ type: "text", text }] } });
  };
  setInterval(send, 200).unref?.();
  return { "chat.message": async (message: any) => { session ||= message.sessionID } };
};
