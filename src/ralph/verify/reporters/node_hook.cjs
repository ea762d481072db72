// Loaded into every Node process of a check by NODE_OPTIONS. In a test runner it asks for one more report, as JSON, in the
// directory RALPH_TEST_RESULTS. What the runner prints stays as it is. In all other processes it does nothing.
"use strict";
const fs = require("fs");
const path = require("path");
const { isMainThread } = require("worker_threads");

const directory = process.env.RALPH_TEST_RESULTS;

function realPath(file) {
  try {
    return fs.realpathSync(file);
  } catch {
    return file;
  }
}

function hasOption(name) {
  return process.argv.some((word) => word === name || word.startsWith(name + "=") || word.startsWith(name + "."));
}

function addOptions(options) {
  // What follows `--` is not for the runner.
  const end = process.argv.indexOf("--", 2);
  process.argv.splice(end < 0 ? process.argv.length : end, 0, ...options);
}

function askVitest(report) {
  const subcommand = process.argv[2] || "";
  if (hasOption("--outputFile") || /^(bench|list|init|typecheck)$/.test(subcommand)) return;
  const reporters = hasOption("--reporter") ? [] : ["--reporter=default"];
  addOptions([...reporters, "--reporter=json", `--outputFile.json=${report}`]);
}

function askJest(report) {
  if (hasOption("--json") || hasOption("--outputFile") || hasOption("--listTests") || hasOption("--showConfig")) return;
  addOptions(["--json", `--outputFile=${report}`]);
}

// Mocha has no second reporter, so its runner is watched.
function watchMocha(report) {
  const Module = require("module");
  const load = Module._load;
  Module._load = function (request, parent, isMain) {
    const loaded = load.apply(this, arguments);
    if (typeof loaded !== "function" || !/(^|[\\/])runner(\.js)?$/.test(request) || loaded.ralphWatches) return loaded;
    if (!loaded.prototype || typeof loaded.prototype.runTests !== "function") return loaded;
    loaded.ralphWatches = true;
    const emit = loaded.prototype.emit;
    const tests = [];
    loaded.prototype.emit = function (event, test) {
      const status = { pass: "passed", fail: "failed", pending: "skipped" }[event];
      if (status && test && test.titlePath) {
        tests.push({ file: test.file || "", title: test.titlePath(), status });
      } else if (event === "end") {
        fs.writeFileSync(report, JSON.stringify({ mocha: tests }));
      }
      return emit.apply(this, arguments);
    };
    return loaded;
  };
}

const runners = [
  [/[\\/]vitest[\\/](?:dist[\\/])?(?:vitest|cli)\.m?js$/, "vitest", askVitest],
  [/[\\/]jest(?:-cli)?[\\/]bin[\\/]jest(?:\.js)?$/, "jest", askJest],
  [/[\\/]mocha[\\/]bin[\\/]_?mocha(?:\.c?js)?$/, "mocha", watchMocha],
];

if (directory && isMainThread && process.argv[1]) {
  const program = realPath(process.argv[1]);
  for (const [pattern, name, ask] of runners) {
    if (pattern.test(program)) ask(path.join(directory, `${name}-${process.pid}.json`));
  }
}
