// An extension that runs inside pi and passes on messages of the user after a tool, and before pi ends.
import { claimMessages } from "./claim_messages.ts";

export default function (pi: any) {
  const send = async () => {
    const text = claimMessages();
    if (text) pi.sendUserMessage(text, { deliverAs: "steer" });
  };
  pi.on("tool_result", send);
  pi.on("turn_end", send);
}
