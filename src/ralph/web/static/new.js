// Start a run: the form is a dry run. What the run would do, may use and starts is shown before the button.
import { html, ErrorNote, Icon, Note, onCtrlEnter, Prose, sentence, useEffect, useLayoutEffect, useRef, useState } from './lib.js';
import { send } from './api.js';
import { navigate } from './app.js';

const WAIT = 600;
const WORKFLOWS = {
  loop: ['Loop', 'Works on one task until the criterion holds.'],
  session: ['Session', 'Plans a request, works on its tasks, reviews and merges them.'],
  hats: ['Hats', 'One turn for each event, by the hats of a preset.'],
};

// The fields by the names that errors of the server have for them.
const FIELDS = { '--until': ['until', 'Done when'], until: ['until', 'Done when'], checks: ['until', 'Check'], '--check': ['until', 'Check'], task: ['task', 'Task'],
  agents: ['agent', 'Agent'], '--agent': ['agent', 'Agent'], preset: ['preset', 'Preset'], max_iterations: ['iterations', 'Iterations at most'],
  '--max-iterations': ['iterations', 'Iterations at most'], max_cost: ['cost', 'Dollars at most'], '--max-cost': ['cost', 'Dollars at most'],
  timeout: ['minutes', 'Minutes at most'], '--timeout': ['minutes', 'Minutes at most'], '--worktree': ['worktree', 'Work in a worktree'] };

// A text of the server with the labels of the form instead of the options of the command line. What to write needs no option
// before it, and hints about options that the form does not have are left out.
function nameFields(text) {
  const label = (option) => `“${FIELDS[option][1]}”`;
  return String(text || '').replace(/(write (?:the command: )?|for example )--(?:until|check) /g, '$1').replace(/ \(--[a-z]+ [^)]*\)/g, '')
    .replace(/(pass |add |omit )?(--[a-z-]+)/g, (whole, verb, option) => {
      if (!FIELDS[option]) return whole;
      return verb === 'omit ' ? `leave ${label(option)} empty` : `${verb ? 'use ' : ''}${label(option)}`;
    });
}

// What is wrong, with the name of the field instead of that of the option.
function FormError({ error }) {
  const [, label] = FIELDS[error.where] || [];
  if (!label) return html`<${ErrorNote} error=${{ ...error, what: nameFields(error.what), todo: nameFields(error.todo) }} />`;
  const what = error.what.replace(new RegExp(`^(${error.where}) is `), 'This is ');
  return html`<${ErrorNote} error=${{ what: `${label}: ${nameFields(what)}`, todo: nameFields(error.todo) }} />`;
}

export function NewRun({ me, project }) {
  const isMine = me.role === 'admin' && !me.read_only && me.can_start;
  const first = me.projects.find((one) => one.name === project) || me.projects[0];
  const [form, setForm] = useState({ project: first?.key || '', workflow: 'loop', task: '', until: '', preset: '', agent: '', iterations: '', cost: '', minutes: '', worktree: false });
  const { plan, error, isPlanning } = usePlan(form, isMine);
  const [state, setState] = useState({ isStarting: false, error: null });
  const change = (name) => (event) => {
    const { type, checked, value } = event.target;
    setForm({ ...form, [name]: type === 'checkbox' ? checked : value });
    setState({ isStarting: false, error: null });
  };
  const canStart = isMine && plan && !isPlanning && !state.isStarting;
  const start = async () => {
    if (!canStart) return;
    setState({ isStarting: true, error: null });
    try {
      const started = await send('/api/runs', { ...bodyOf(form), dry_run: false, consent: plan.consent.digest });
      navigate(`/r/${started.key}/live`);
    } catch (failed) { setState({ isStarting: false, error: failed.code === 'cancelled' ? null : failed }); }
  };
  const wrong = FIELDS[(error || state.error)?.where]?.[0];
  const area = useRef(null);
  useLayoutEffect(() => { area.current?.focus(); }, []);
  if (!me.projects.length) {
    return html`<main class="page" id="main"><h1>New run</h1><div class="box"><div class="empty"><b>No project yet</b>Use Ralph once in a project, for example
      <code>ralph doctor</code>. It is then listed here.</div></div></main>`;
  }
  const text = (name, label, hint, placeholder = '') => html`<label class="formrow"><span class="lab">${label}</span>
    <span class="field"><input aria-invalid=${wrong === name ? 'true' : null} value=${form[name]} placeholder=${placeholder} disabled=${!isMine} onInput=${change(name)} onKeyDown=${onCtrlEnter(start)} /></span>
    ${hint && html`<span class="sm dimmer">${hint}</span>`}</label>`;
  return html`<main class="page new" id="main"><h1>New run</h1>
    ${!isMine && html`<${Note} kind="need">This page cannot start runs: ${me.can_start ? 'it may only view.' : 'it shows one run.'}<//>`}
    <div class="new-cols"><form class="box" onSubmit=${(event) => { event.preventDefault(); start(); }}><div class="in form">
      <label class="formrow"><span class="lab">Project</span><span class="pick wide"><select value=${form.project} disabled=${!isMine} onChange=${change('project')}>
        ${me.projects.map((one) => html`<option value=${one.key}>${one.name} (${one.root})</option>`)}</select></span></label>
      <div class="formrow" role="group" aria-label="Workflow"><span class="lab">Workflow</span><span class="seg">${Object.entries(WORKFLOWS).map(([name, [title]]) => html`<button
        type="button" aria-pressed=${form.workflow === name} disabled=${!isMine} onClick=${() => setForm({ ...form, workflow: name })}>${title}</button>`)}</span>
        <span class="sm dimmer">${WORKFLOWS[form.workflow][1]}</span></div>
      <label class="formrow"><span class="lab">Task</span><span class="composer"><textarea ref=${area} rows="4" value=${form.task} disabled=${!isMine}
        placeholder="Fix the failing tests" onInput=${change('task')} onKeyDown=${onCtrlEnter(start)}></textarea></span></label>
      ${form.workflow === 'hats' && text('preset', 'Preset', 'A name from `ralph hats list`, or empty for ralph.yml.', 'tdd')}
      ${text('until', form.workflow === 'loop' ? 'Done when' : 'Check', form.workflow === 'loop' ? 'A command between backticks, and what it must do.' : 'Optional.', '`pytest -q` passes')}
      ${text('agent', 'Agent', 'Empty for the one in your settings.', 'claude')}
      <div class="formrow three">${form.workflow !== 'session' && text('iterations', 'Iterations at most', '', '10')}
        ${text('cost', 'Dollars at most', '', 'no limit')}${text('minutes', 'Minutes at most', '', form.workflow === 'session' ? 'no limit' : '60')}</div>
      ${form.workflow === 'loop' && html`<label class="row"><input type="checkbox" checked=${form.worktree} disabled=${!isMine} onChange=${change('worktree')} />Work in a worktree, on a branch of its own</label>`}
    </div></form>
    <section class="box plan" aria-label="Plan" aria-busy=${isPlanning}><header><h2>What it would do</h2><span class="grow"></span>
        ${isPlanning && html`<span class="sm dimmer">Planning…</span>`}</header><div class="in">
      ${error && html`<${FormError} error=${error} />`}
      ${!plan && !error && html`<p class="dim">Say what to do${form.workflow === 'loop' ? ' and when it is done' : ''}. The plan shows here before anything starts.</p>`}
      ${plan && html`<${Plan} plan=${plan} />`}
      ${state.error && html`<${FormError} error=${state.error} />`}
      ${plan && html`<div class="acts row wrap"><button class="btn primary" disabled=${!canStart} onClick=${start}>${state.isStarting ? 'Starting…'
    : plan.consent.is_required ? 'Agree and start…' : 'Start…'}</button><span class="sm dimmer">Needs your passphrase</span></div>`}</div></section></div></main>`;
}

function Plan({ plan }) {
  const { consent } = plan;
  return html`<dl class="kv wide"><dt>Checks</dt><dd>${plan.checks.length ? html`<ul>${plan.checks.map((one) => html`<li><code>${one.command || one.title}</code></li>`)}</ul>`
    : 'None: the result cannot be verified.'}</dd>
    <dt>Agent</dt><dd>${Object.entries(plan.agents).map(([label, command]) => html`<details><summary>${label}</summary><pre class="out" tabindex="0">${command}</pre></details>`)}</dd>
    <dt>Directory</dt><dd>${plan.directory}</dd>
    <dt>At most</dt><dd>${nameFields(plan.worst_case)}</dd>
    <dt>Limits</dt><dd class="dim">${plan.limits.filter(([, value]) => value !== 'no limit').map(([name, value]) => `${name}: ${value}`).join(', ')}</dd>
    ${plan.notices.length > 0 && html`<dt>Notes</dt><dd><ul>${plan.notices.map((one) => html`<li class="spaced"><${Prose} text=${sentence(nameFields(one))} /></li>`)}</ul></dd>`}</dl>
    <details class="below"><summary class="link">First prompt</summary><pre class="out tall" tabindex="0">${plan.prompt || 'The plan decides.'}</pre></details>
    ${consent.is_required && html`<div class="consent"><p class="row"><${Icon} name="warn" tone="need" /><b>You have not agreed to this yet</b></p>
      <ul>${consent.items.map((item) => html`<li><p>${item.name}${item.is_changed ? ', changed since you agreed' : ''}</p>
        ${!item.name.endsWith(` ${item.text}`) && html`<pre class="out tall" tabindex="0">${item.text}</pre>`}</li>`)}</ul></div>`}
    <p class="dim below about"><${Prose} text=${nameFields(consent.about)} /></p>`;
}

// The plan follows the form. It is asked for when the user stops typing, and is the same as `--dry-run`.
function usePlan(form, isMine) {
  const [found, setFound] = useState({ plan: null, error: null, isPlanning: false });
  const isReady = isMine && form.project && form.task.trim() && (form.workflow !== 'loop' || form.until.trim());
  useEffect(() => {
    if (!isReady) { setFound({ plan: null, error: null, isPlanning: false }); return undefined; }
    let isCurrent = true;
    setFound((before) => ({ ...before, isPlanning: true }));
    const timer = setTimeout(async () => {
      try {
        const plan = await send('/api/runs', bodyOf(form));
        if (isCurrent) setFound({ plan, error: null, isPlanning: false });
      } catch (error) { if (isCurrent) setFound({ plan: null, error, isPlanning: false }); }
    }, WAIT);
    return () => { isCurrent = false; clearTimeout(timer); };
  }, [JSON.stringify(form), isReady]);
  return found;
}

function bodyOf(form) {
  const number = (text) => (text.trim() === '' ? null : Number.isNaN(Number(text)) ? text : Number(text));
  const options = { max_cost: number(form.cost), timeout: number(form.minutes), agents: form.agent.trim() ? form.agent.trim().split(/[\s,]+/) : null };
  if (form.workflow === 'loop') { options.until = form.until; options.worktree = form.worktree; } else options.checks = form.until.trim() ? [form.until] : null;
  if (form.workflow !== 'session') options.max_iterations = number(form.iterations);
  if (form.workflow === 'hats') options.preset = form.preset.trim() || null;
  return { project: form.project, workflow: form.workflow, task: form.task, options };
}
