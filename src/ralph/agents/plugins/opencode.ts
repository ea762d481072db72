// What runs inside of OpenCode, as a plugin: words of a person are said to it while it works.
import { claim } from "./words.ts";

export const Ralph = async ({ client }: any) => {
  let session = "";
  const say = async () => {
    const words = session && claim();
    if (words) await client.session.promptAsync({ path: { id: session }, body: { parts: [{ type: "text", text: words }] } });
  };
  setInterval(say, 200).unref?.();
  return { "chat.message": async (message: any) => { session ||= message.sessionID } };
};
