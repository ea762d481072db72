// Evidence: a matrix of checks by iteration, the output of each, and what the guards found.
import { html, Badge, clock, count, Empty, ErrorNote, Icon, CopyButton, Prose, shortSpan, useEffect, useKeys, useMedia, useState, copyText } from './lib.js';
import { get } from './api.js';
import { Hunk, useDiff } from './diff.js';

const SPARK_POINTS = 12;

export function ChecksTab({ view, iteration, onIteration }) {
  // The checks of the whole run, then those of its tasks in their order.
  const order = ['', ...view.tasks.map((task) => task.id)];
  const scopes = [...new Set(view.checks.map((check) => check.scope))].sort((one, other) => order.indexOf(one) - order.indexOf(other));
  const [chosen, setChosen] = useState(null);
  if (!view.checks.length) {
    return html`<section class="pane" aria-label="Checks"><div class="box"><${Empty} title=${view.run.checks.length ? 'Not checked yet'
      : 'This run has no checks'}>${view.run.checks.length ? html`<${Prose} text=${view.run.checks.join(', ')} /> ${' '}runs before the first turn and after each turn.`
  : 'Its result cannot be verified.'}<//></div></section>`;
  }
  const first = view.checks.find((check) => check.status !== 'passed') || view.checks[0];
  const check = view.checks.find((one) => chosen && one.scope === chosen.scope && one.title === chosen.title) || first;
  const point = pointAt(check, iteration) || check.history.at(-1);
  return html`<section class="pane" aria-label="Checks">
    <${Grade} view=${view} />
    ${scopes.map((scope) => html`<${Matrix} key=${scope} view=${view} scope=${scope} check=${check} point=${point}
      onChoose=${(one, column) => { setChosen({ scope: one.scope, title: one.title }); onIteration(column); }} />
      ${scope === check.scope && html`<${Detail} key=${`${check.scope} ${check.title}`} view=${view} check=${check} point=${point} />`}`)}
    <${Findings} view=${view} /></section>`;
}

// What the verdict rests on. There is none before the end, and nothing that this machine did not verify.
function Grade({ view }) {
  const evidence = !view.alive && !view.doubt && view.ended?.evidence;
  if (!evidence) return null;
  const names = (files) => html`<span class="files">${files.slice(0, 12).map((file) => html`<code>${file}</code> `)}${files.length > 12
    && `and ${files.length - 12} more`}</span>`;
  const facts = [['Why', evidence.reason]];
  if (evidence.compared) facts.push(['Compared', evidence.compared]);
  if (evidence.restored.length) facts.push(['As before the run', names(evidence.restored)]);
  if (evidence.to_judge.length) facts.push(['To be judged', names(evidence.to_judge)]);
  return html`<div class="box" data-grade=${evidence.grade}><header><h3>Evidence</h3><${Badge} label=${view.display.grade} /></header>
    <div class="in"><dl class="kv wide">${facts.map(([name, value]) => html`<dt>${name}</dt><dd>${typeof value === 'string'
    ? html`<${Prose} text=${value} />` : value}</dd>`)}</dl></div></div>`;
}

export function columnsOf(checks) {
  const columns = new Map();
  for (const check of checks) for (const point of check.history) columns.set(columnOf(point), point);
  return [...columns.keys()].sort((a, b) => a - b);
}

function columnOf(point) {
  return point.key === 'baseline' ? 0 : point.iteration;
}

export function pointAt(check, column) {
  return check.history.filter((point) => columnOf(point) === column).at(-1);
}

export function labelOf(view, point) {
  const labels = view.display.checks;
  if (!point) return labels[''];
  return point.flaky ? labels.flaky : labels[point.status];
}

// As many columns as fit. The others are one click away.
function useColumnCount() {
  const isWide = useMedia('(min-width: 1600px)');
  const isPhone = useMedia('(max-width: 719px)');
  if (isPhone) return 4;
  return isWide ? 12 : 7;
}

function Matrix({ view, scope, check, point, onChoose }) {
  const checks = view.checks.filter((one) => one.scope === scope);
  const all = columnsOf(checks);
  const most = useColumnCount();
  const [end, setEnd] = useState(null);
  const last = Math.min(all.length, Math.max(end ?? all.length, most));
  const first = Math.max(0, last - most);
  const columns = all.slice(first, last);
  const wanted = check.scope === scope ? all.indexOf(columnOf(point)) : -1;
  // What the user chose elsewhere on the page is shown here.
  useEffect(() => { if (wanted >= 0 && (wanted < first || wanted >= last)) setEnd(wanted + 1); }, [wanted]);
  const hasBase = checks.some((one) => one.attribution);
  const hasRoom = useMedia('(min-width: 1400px)');
  const hasSpark = hasRoom && checks.some((one) => one.history.length > 2);
  const shown = (column) => (column ? `${scope ? 'attempt' : 'iteration'} ${column}` : 'before the run');
  return html`<div class="box">${all.length > most && html`<header class="pager"><span class="sm dim">${scope || 'Results'}: ${shown(columns[0])} to ${columns.at(-1)} of ${all.at(-1)}</span>
      <span class="grow"></span><button class="btn sm" disabled=${first === 0} onClick=${() => setEnd(Math.max(most, first))}>Earlier</button>
      <button class="btn sm" disabled=${last === all.length} onClick=${() => setEnd(last + most >= all.length ? null : last + most)}>Later</button></header>`}
    <table class="mx"><caption class="sr">Checks by iteration${scope ? ` of ${scope}` : ''}</caption>
    <thead><tr><th>${scope ? `Check of ${scope}` : 'Check'}</th>${columns.map((column) => html`<th>${column || html`<abbr
      title="before the run">Base</abbr>`}</th>`)}${hasSpark && html`<th>Duration</th>`}<th class="num">Last</th>
      ${hasBase && html`<th class="l since only-wide">Since the base</th>`}</tr></thead>
    <tbody>${checks.map((one) => html`<tr><th scope="row"><code>${one.command || one.title}</code></th>
      ${columns.map((column) => {
    const here = pointAt(one, column);
    const label = labelOf(view, here);
    const isOn = one === check && here && here === point;
    return html`<td>${here ? html`<button class=${`cell ${isOn ? 'on' : ''}`} aria-pressed=${isOn} title=${`${label[1]} ${column ? `in ${shown(column)}` : shown(column)}, ${shortSpan(here.seconds)}`}
        onClick=${() => onChoose(one, column)}><${Icon} name=${label[0]} tone=${label[2]} label=${label[1]} /></button>`
    : html`<span class="cell"><${Icon} name=${label[0]} tone=${label[2]} label=${label[1]} /></span>`}</td>`;
  })}
      ${hasSpark && html`<td><${Spark} points=${one.history} /></td>`}<td class="num">${shortSpan(one.seconds)}</td>
      ${hasBase && html`<td class="l dim since only-wide">${sinceBase(view, one)}</td>`}</tr>`)}</tbody></table></div>`;
}

function sinceBase(view, check) {
  const text = view.display.attributions[check.attribution] || '';
  return check.attribution === 'fixed' && check.since?.iteration ? `fixed in ${check.since.iteration}` : text;
}

function Spark({ points }) {
  const seconds = points.slice(-SPARK_POINTS).map((point) => point.seconds);
  if (seconds.length < 2) return null;
  const most = Math.max(...seconds, 0.001);
  const at = seconds.map((value, n) => [2 + (n * 84) / (seconds.length - 1), 18 - (value / most) * 15]);
  const [x, y] = at.at(-1);
  return html`<svg class="spark" viewBox="0 0 88 20" aria-hidden="true"><polyline class="spark-line"
    points=${at.map((pair) => pair.map((n) => n.toFixed(1)).join(',')).join(' ')} /><circle class="spark-end" cx=${x} cy=${y} r="2" /></svg>`;
}

// What a check printed in an earlier iteration is in the journal line of that verdict.
function useResult(view, check, point) {
  const isLast = point === check.history.at(-1);
  const [found, setFound] = useState({ seq: 0, result: null, error: null });
  useEffect(() => {
    if (isLast || found.seq === point.seq) return undefined;
    let isCurrent = true;
    const keep = (result, error) => isCurrent && setFound({ seq: point.seq, result, error });
    get(`/api/runs/${encodeURIComponent(view.key)}/journal?from=${point.seq}&to=${point.seq}`)
      .then(({ lines }) => keep(lines[0]?.verdict?.results?.find((one) => one.title === check.title) || null, null))
      .catch((error) => keep(null, error));
    return () => { isCurrent = false; };
  }, [isLast, point.seq, check.title]);
  if (isLast) return { result: check, error: null };
  return found.seq === point.seq ? found : { result: null, error: null };
}

function Detail({ view, check, point }) {
  const isLast = point === check.history.at(-1);
  const label = labelOf(view, point);
  const [whole, setWhole] = useState(null);
  const [problem, setProblem] = useState(null);
  const { result, error } = useResult(view, check, point);
  const log = result?.log || '';
  const rerun = check.command ? `cd ${quote(placeOf(view, check))} && ${check.command}` : '';
  useKeys(rerun ? { y: ['Copy the command to rerun', () => copyText(rerun)] } : {}, 'Checks');
  useEffect(() => { setWhole(null); setProblem(null); }, [point.seq]);
  const load = async () => {
    try {
      setWhole(await get(`/api/runs/${encodeURIComponent(view.key)}/output?log=${encodeURIComponent(log)}`));
    } catch (failed) { setProblem(failed); }
  };
  const median = [...check.history].map((one) => one.seconds).sort((a, b) => a - b)[Math.floor(check.history.length / 2)];
  const nameOf = (one) => (one.key === 'baseline' ? 'before the run' : `${check.scope ? 'attempt' : 'iteration'} ${one.iteration}`);
  const where = point.key === 'baseline' ? 'before the run' : `in ${nameOf(point)}`;
  const facts = [['Verdict', html`<span class=${`c-${label[2]}`}>${label[1]}${Number.isInteger(result?.code) ? `, exit code ${result.code}` : ''}</span>`]];
  if (result?.reason) facts.push(['Reason', result.reason]);
  if (result?.tests) facts.push(['Counts', `${result.tests.passed} passed, ${result.tests.failed} failed`]);
  if (isLast && check.status !== 'passed' && check.since) facts.push(['Since', nameOf(check.since)]);
  if (isLast && check.same_since && check.same_since.seq !== point.seq) {
    facts.push(['Same failure', `since ${nameOf(check.same_since)}`]);
  }
  if (isLast && check.attribution) facts.push(['Attribution', view.display.attributions[check.attribution]]);
  facts.push(['Took', `${shortSpan(point.seconds)}, median ${shortSpan(median)}`], ['At', clock(point.at, true)]);
  const output = whole ? whole.text : result?.output || '';
  return html`<div class="box"><header class="wraps"><${Icon} name=${label[0]} tone=${label[2]} /><h3><code>${check.command || check.title}</code></h3>
    <span class="dim now">${label[1].toLowerCase()} ${where}</span><span class="grow"></span>
    ${rerun && html`<${CopyButton} text=${rerun} label="Copy command to rerun" kbd="y" />`}</header>
    <div class="in detail"><dl class="kv">${facts.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>
    <div>${error && html`<${ErrorNote} error=${error} />`}${problem && html`<${ErrorNote} error=${problem} onRetry=${load} />`}
      ${output ? html`<pre class="out tall" tabindex="0" aria-label="Output">${output.split('\n').map((line) => html`<span class=${lineTone(line)}>${line}
</span>`)}</pre>` : result && html`<p class="dimmer sm">${label[2] === 'pass' ? 'It passed.' : 'Its output has no more details.'}</p>`}
      ${log && !whole && html`<p class="sm below"><button class="linkish" onClick=${load}>Whole output</button></p>`}
      ${whole?.next && html`<p class="sm dimmer">The first 256 KB of ${Math.round(whole.size / 1024)} KB.</p>`}</div></div></div>`;
}

// Where the check ran. The worktrees of tasks are removed after the merge, so that their checks run in the project.
function placeOf({ run }, check) {
  const parts = [run.project, check.scope ? '.' : run.workspace, run.directory];
  return parts.filter((part) => part && part !== '.').join('/');
}

function lineTone(line) {
  if (/^(E |>|FAILED|ERROR|error)|\b(Error|Exception|FAILED|failed|assert)\b/.test(line)) return 'e';
  return '';
}

function quote(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

function Findings({ view }) {
  const open = view.findings.filter((one) => one.is_open);
  const { data } = useDiff(view, '', open.length > 0);
  if (!open.length) return null;
  const isHeld = open.some(({ finding }) => finding.severity === 'error');
  const weight = view.alive ? 'goes to the agent with the next prompt' : isHeld ? 'prevents success' : 'a warning, which does not prevent success';
  return html`<div class="box"><header><${Icon} name="warn" tone="need" /><h3>${count(open.length, 'guard finding')}</h3>
      <span class="dim">${weight}</span></header>
    ${open.map(({ finding, key }) => html`<div class="finding"><p><b><${Prose} text=${finding.sentence} /></b></p>
      <p class="sm dimmer"><code>${finding.rule}</code> · <a class="link mono" href=${`/r/${view.key}/diff`}>${finding.path}${finding.line
  ? `:${finding.line}` : ''}</a> · ${key.replace('-', ' ')} · ${finding.severity}</p></div>
      <${FindingHunk} data=${data} finding=${finding} />`)}</div>`;
}

function FindingHunk({ data, finding }) {
  const file = data?.files.find((one) => one.path === finding.path);
  const hunk = file?.hunks.find((one) => one.lines.some((line) => line[2] === finding.line || line[1] === finding.line));
  if (!hunk) return finding.excerpt ? html`<pre class="out in-box">${finding.excerpt}</pre>` : null;
  const at = hunk.lines.findIndex((line) => line[2] === finding.line || line[1] === finding.line);
  const lines = hunk.lines.slice(Math.max(0, at - 5), at + 6);
  return html`<table class="hunk"><tbody><${Hunk} hunk=${{ ...hunk, lines }} hit=${finding.line} /></tbody></table>`;
}
