// What every screen uses: templates, icons, labels, times and numbers.
import { h } from './vendor/preact.js';
import htm from './vendor/htm.js';
import { useEffect, useLayoutEffect, useReducer, useRef, useState } from './vendor/hooks.js';
import { retryNow } from './api.js';

export const html = htm.bind(h);

export function Icon({ name, tone = '', label = '' }) {
  const kind = `i ${tone ? `c-${tone}` : ''}`;
  const use = html`<use href=${`/static/icons.svg#i-${name}`} />`;
  return label
    ? html`<svg class=${kind} role="img" aria-label=${label}>${use}</svg>`
    : html`<svg class=${kind} aria-hidden="true">${use}</svg>`;
}

// A label comes from the server as [symbol, word, color].
export function State({ label }) {
  return html`<span class="state"><${Icon} name=${label[0]} tone=${label[2]} />${label[1]}</span>`;
}

export function Badge({ label, text = '' }) {
  return html`<span class=${`badge ${label[2]}`}><${Icon} name=${label[0]} />${text || label[1]}</span>`;
}

export function Bar({ share }) {
  const kind = share >= 1 ? 'over' : share >= 0.8 ? 'warn' : '';
  return html`<span class=${`bar ${kind}`}><i style=${{ width: `${Math.min(100, share * 100)}%` }}></i></span>`;
}

// Commands and paths between backticks are code; everything else stays text.
export function Prose({ text }) {
  return String(text).split('`').map((part, n) => (n % 2 ? html`<code>${part}</code>` : part));
}

// A text of the server as a sentence. What begins with code stays as it is.
export function sentence(text) {
  return String(text).replace(/^[a-z]/, (letter) => letter.toUpperCase());
}

export function Empty({ title, children }) {
  return html`<div class="empty"><b>${title}</b>${children}</div>`;
}

export function Note({ kind = '', icon = 'warn', children }) {
  const tone = kind === 'fail' ? 'fail' : kind === 'need' ? 'need' : 'idle';
  return html`<p class=${`note ${kind}`}><${Icon} name=${icon} tone=${tone} /><span>${children}</span></p>`;
}

export function ErrorNote({ error, onRetry }) {
  return html`<${Note} kind="fail" icon="failo"><b>${sentence(error.what)}.</b>${' '}
    ${error.where && html`<span class="dim">(<code>${error.where}</code>)</span>`}${' '}<${Prose} text=${sentence(error.todo || '')} />${' '}
    ${onRetry && html`<button class="linkish" onClick=${onRetry}>Try again</button>`}<//>`;
}

export function OfflineNote({ since }) {
  return html`<${Note} kind="need"><b>Not connected.</b> What you see is from ${since}. Trying again.${' '}
    <button class="linkish" onClick=${retryNow}>Retry now</button><//>`;
}

// Bars of the final height, after 300 ms.
export function Loading({ lines = 3 }) {
  const [shows, setShows] = useState(false);
  useEffect(() => { const id = setTimeout(() => setShows(true), 300); return () => clearTimeout(id); }, []);
  if (!shows) return null;
  return html`<div class="loading" aria-label="Loading">${Array.from({ length: lines }, (_, n) =>
    html`<span class=${`skel w${n % 3}`}></span>`)}</div>`;
}

export function CopyButton({ text, label, kbd = '', kind = 'sm' }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await copyText(text);
    setDone(true);
    setTimeout(() => setDone(false), 2000);
  };
  return html`<button class=${`btn ${kind}`} onClick=${copy} title=${text}>
    <${Icon} name=${done ? 'check' : 'copy'} tone=${done ? 'pass' : ''} />${done ? 'Copied' : label}
    ${kbd && html`<kbd>${kbd}</kbd>`}</button>`;
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement('textarea');
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
}

// Renders again every so many seconds, so that ages are right.
export function useClock(seconds = 5) {
  const [, tick] = useReducer((n) => n + 1, 0);
  useEffect(() => { const id = setInterval(tick, seconds * 1000); return () => clearInterval(id); }, [seconds]);
  return Date.now() / 1000;
}

export function useMedia(query) {
  const [matches, setMatches] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const media = matchMedia(query);
    const change = () => setMatches(media.matches);
    change();
    media.addEventListener('change', change);
    return () => media.removeEventListener('change', change);
  }, [query]);
  return matches;
}

// A long list: the newest first, and the others after a click.
export function useShort(items, most) {
  const [isWhole, setIsWhole] = useState(false);
  const rest = items.length - most;
  if (isWhole || rest <= 0) return [items, null];
  return [items.slice(0, most), html`<li><button class="linkish sm" onClick=${() => setIsWhole(true)}>Show ${rest} earlier</button></li>`];
}

// Single keys can be switched off, because dictation and some keyboards press them by accident. The choice stays in this browser.
export function areKeysOn() {
  return localStorage.getItem('ralph-keys') !== 'off';
}

export function switchKeys(isOn) {
  localStorage.setItem('ralph-keys', isOn ? 'on' : 'off');
  document.documentElement.dataset.keys = isOn ? 'on' : 'off';
}

// The keys that act now, for the help. Every screen adds its own.
const shown = new Set();

export function listKeys() {
  const places = new Map();
  for (const { current } of shown) {
    if (!places.has(current.place)) places.set(current.place, new Map());
    const known = places.get(current.place);
    // Cards use the same keys for different things: each meaning is listed.
    for (const [key, [title]] of Object.entries(current.keys)) known.set(key, [...(known.get(key) || []).filter((one) => one !== title), title]);
  }
  return [...places].map(([place, keys]) => [place, [...keys].map(([key, titles]) => [key, titles.join('; ')])]).filter(([, keys]) => keys.length);
}

// Keys act only if the user is not typing. `keys` maps a key to its title and its function; a function of null is only listed.
// Before the browser paints: a user who presses a key as soon as the page shows it is heard.
export function useKeys(keys, place, within = null) {
  const latest = useRef(null);
  latest.current = { keys, place };
  useLayoutEffect(() => {
    const target = within ? within.current : document;
    const handle = (event) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      if (event.target.closest?.('dialog') || (event.key.length === 1 && !areKeysOn())) return;
      const [, action] = latest.current.keys[event.key] || [];
      if (action) { event.preventDefault(); action(event); }
    };
    shown.add(latest);
    target?.addEventListener('keydown', handle);
    return () => { shown.delete(latest); target?.removeEventListener('keydown', handle); };
  }, [within?.current]);
}

// A modal dialog. It opens before the browser paints, and gives the focus back when it closes.
export function Dialog({ isOpen, onClose, title, children }) {
  const dialog = useRef(null);
  useLayoutEffect(() => {
    if (isOpen && !dialog.current.open) dialog.current.showModal();
    if (!isOpen && dialog.current.open) dialog.current.close();
  });
  return html`<dialog ref=${dialog} class="dialog" aria-label=${title} onClose=${() => isOpen && onClose()}
    onCancel=${(event) => { event.preventDefault(); onClose(); }}>${isOpen && html`<h2>${title}</h2>${children}`}</dialog>`;
}

// For text fields: Ctrl+Enter does what the button below does. Enter alone makes a new line.
export function onCtrlEnter(send) {
  return (event) => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    send();
  };
}

export function isTyping(node) {
  return node instanceof HTMLElement
    && (node.isContentEditable || /^(TEXTAREA|SELECT)$/.test(node.tagName)
      || (node.tagName === 'INPUT' && !/^(radio|checkbox|button)$/.test(node.type)));
}

export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 90) return `${s} s`;
  const minutes = Math.round(s / 60);
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 600 && minutes % 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  if (minutes < 48 * 60) return `${Math.round(minutes / 60)} h`;
  return `${Math.round(minutes / 1440)} d`;
}

export function shortSpan(seconds) {
  return seconds < 10 ? `${seconds.toFixed(1)} s` : span(seconds);
}

export function clock(at, withSeconds = false) {
  const date = new Date(at * 1000);
  const time = date.toTimeString().slice(0, withSeconds ? 8 : 5);
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? time : `${date.toISOString().slice(5, 10)} ${time}`;
}

// The name of an agent. A command of the user's own is shown without the directories of its programs.
export function agentName(text) {
  return String(text || '').split(' ').map((word) => word.slice(word.lastIndexOf('/') + 1)).join(' ');
}

export function money(value) {
  return `$${value.toFixed(value && value < 0.1 ? 3 : 2)}`;
}

// What was spent at least, if some turns reported no price.
export function spentMoney(spent, cost = spent.cost) {
  return `${spent.unpriced_turns ? '≥ ' : ''}${money(cost)}`;
}

export function count(n, noun) {
  return `${n} ${noun}${n === 1 ? '' : 's'}`;
}

export function tokens(n) {
  if (n >= 1e6) return `${(n / 1e6).toFixed(2)} M`;
  return n >= 1e4 ? `${Math.round(n / 1e3)} k` : String(Math.round(n));
}

// The coordinator of a run of hats is `ralph` in files.
export function roleName(role) {
  return role === 'ralph' ? 'coordinator' : role;
}

export function firstLine(text) {
  return (text || '').trim().split('\n')[0].replace(/^#+\s*/, '');
}

export { h, useEffect, useLayoutEffect, useRef, useState };
export { useMemo } from './vendor/hooks.js';
