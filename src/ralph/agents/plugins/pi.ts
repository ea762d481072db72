// What runs inside of pi, as an extension: words of a person are said to it after a tool, and before it ends.
import { claim } from "./words.ts";

export default function (pi: any) {
  const say = async () => {
    const words = claim();
    if (words) pi.sendUserMessage(words, { deliverAs: "steer" });
  };
  pi.on("tool_result", say);
  pi.on("turn_end", say);
}
