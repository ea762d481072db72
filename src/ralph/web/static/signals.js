// Messages to the agents: the composer, and what became of each signal.
import { html, count, firstLine, Icon, onCtrlEnter, Prose, roleName, span, useState } from './lib.js';
import { act } from './api.js';

export function Composer({ view, me, composer, onSaid }) {
  const [text, setText] = useState('');
  const [target, setTarget] = useState('');
  const [now, setNow] = useState(false);
  const [state, setState] = useState({ phase: '', text: '' });
  const isMine = me.role === 'admin' && !me.read_only;
  const roles = [...new Set(view.turns.map((turn) => turn.role))];
  const isOver = !view.alive && !view.can_go_on;
  const canSend = isMine && !isOver && text.trim() && state.phase !== 'sending';
  const send = async () => {
    if (!canSend) return;
    setState({ phase: 'sending', text: '' });
    try {
      await act(view.key, 'signals', { type: 'STEER', text, target, now });
      setText('');
      setState({ phase: 'sent', text: view.alive ? 'Sent. The list below shows who receives it.' : 'Sent. The run gets it when it continues.' });
      onSaid?.();
    } catch (error) {
      setState({ phase: '', text: `${error.what || error.message}. ${error.todo || ''}` });
    }
  };
  return html`<div class="composer"><label><span class="sr">Message to the agent</span><textarea ref=${composer} rows="2"
      placeholder=${isOver ? 'The run is over.' : 'Say something to the agent…'} value=${text} disabled=${!isMine || isOver}
      onKeyDown=${onCtrlEnter(send)} onInput=${(event) => { setText(event.target.value); setState({ phase: '', text: '' }); }}></textarea></label>
    <div class="row wrap"><label class="pick sm">To: <select value=${target} disabled=${!isMine || isOver}
        onChange=${(event) => setTarget(event.target.value)}><option value="">everyone</option>
        ${roles.map((role) => html`<option value=${role}>${roleName(role)}</option>`)}</select></label>
      <label class="row sm dim" title="Interrupt the turn, and continue the same conversation"><input type="checkbox" checked=${now}
        disabled=${!isMine || isOver} onChange=${(event) => setNow(event.target.checked)} />now</label><span class="grow"></span>
      <button class="btn sm primary" title="Ctrl+Enter" disabled=${!canSend} onClick=${send}>
        ${state.phase === 'sending' ? 'Sending…' : 'Steer'}</button></div>
    ${state.text && html`<p class=${`sm ${state.phase === 'sent' ? 'dim' : 'c-fail'}`} role="status">${state.text}</p>`}</div>`;
}

export function SignalList({ view, now, most = 0 }) {
  const signals = [...view.signals].reverse();
  const shown = most ? signals.slice(0, most) : signals;
  if (!signals.length) return html`<p class="sm dimmer spaced">No signals yet. A steer stays in force until the run ends.</p>`;
  return html`<ul class="sigs">${shown.map((signal) => html`<${SignalItem} key=${signal.id} signal=${signal} view=${view} now=${now} />`)}</ul>`;
}

function SignalItem({ signal, view, now }) {
  const [open, setOpen] = useState(false);
  const lines = (signal.message || '').trim().split('\n');
  const acks = view.display.signals[signal.id] || [];
  const by = nameOf(signal.by);
  const comments = view.comments.filter((one) => one.signal === signal.id).length;
  const title = comments ? `${count(comments, 'comment')} on the changes` : firstLine(signal.message) || (signal.type ? '' : signal.name);
  return html`<li class="sig" data-signal=${signal.type}><div class="row top-row"><span class="grow">
      ${signal.type !== 'STEER' && html`<span class="tok">${(signal.type || 'refused').toLowerCase()}</span> `}
      <b class="w5">${open ? signal.message : title}</b></span>
      ${lines.length > 1 && html`<button class="linkish sm" onClick=${() => setOpen(!open)}>${open ? 'Less' : 'All'}</button>`}</div>
    <p class="sm dimmer">${by}${signal.at ? ` · ${span(now - signal.at)} ago` : ''} · to ${signal.target || 'everyone'}${signal.now
  ? ' · at once' : ''}</p>
    ${acks.map(([icon, tone, text]) => html`<p class="ack"><${Icon} name=${icon} tone=${tone} /><span>${tone === 'need'
    ? html`<b class="c-need">${text.split(',')[0]}</b><${Prose} text=${text.slice(text.split(',')[0].length)} />` : html`<${Prose} text=${text} />`}</span></p>`)}</li>`;
}

function nameOf(by) {
  return by?.startsWith('web:') ? by.slice(4) : by || 'you';
}

function ActionList({ view, now }) {
  if (!view.actions.length) return null;
  return html`<div class="box"><header><h2>Actions on this run</h2><span class="count">${view.actions.length}</span></header><div class="in"><ul class="sigs">
    ${[...view.actions].reverse().map((one) => html`<li class="sig" key=${one.id} data-action=${one.action}><b class="w5"><${Prose} text=${one.result} /></b>
      <p class="sm dimmer">${nameOf(one.by)} · ${span(now - one.at)} ago · <span class="mono">${one.id}</span></p></li>`)}</ul></div></div>`;
}

export function SignalsTab({ view, me, now, composer }) {
  return html`<section class="pane narrow" aria-label="Signals"><div class="box"><header><h2>Send</h2>
      <span class="sm dim">A steer stays in force for later turns until the run ends.</span></header>
      <div class="in"><${Composer} view=${view} me=${me} composer=${composer} /></div></div>
    <div class="box"><header><h2>Ledger</h2><span class="count">${view.signals.length}</span></header>
      <div class="in"><${SignalList} view=${view} now=${now} /></div></div><${ActionList} view=${view} now=${now} /></section>`;
}

