// Requests and streams. The token stays in this tab (sessionStorage) and goes out as `Authorization` only.
const KEY = 'ralph-token';
const RETRIES = [0.2, 1, 1, 2, 2, 4, 4, 8];
const waiting = new Set();

let token = '';
let proof = '';
let passphrase = { ask: async () => null, end: () => {} };

export function takeToken() {
  const url = new URL(location.href);
  const given = url.searchParams.get('token');
  if (given) {
    sessionStorage.setItem(KEY, given);
    url.searchParams.delete('token');
    history.replaceState(null, '', url.pathname + url.search + url.hash);
  }
  token = sessionStorage.getItem(KEY) || '';
  return token;
}

// Other tabs of this page know the token: a link in a notification opens a new tab. Channels are per origin, port included.
const channel = 'BroadcastChannel' in window ? new BroadcastChannel('ralph-token') : null;
if (channel) {
  channel.onmessage = ({ data }) => {
    if (data === 'ask' && token) channel.postMessage({ token });
  };
}

export function askOtherTabs() {
  return new Promise((resolve) => {
    if (!channel) { resolve(''); return; }
    const asking = new BroadcastChannel('ralph-token');
    const finish = (found) => { asking.close(); resolve(found); };
    asking.onmessage = ({ data }) => {
      if (data?.token) { setToken(data.token); finish(data.token); }
    };
    asking.postMessage('ask');
    setTimeout(() => finish(token), 400);
  });
}

export function setToken(value) {
  token = value.trim();
  sessionStorage.setItem(KEY, token);
}

// How to ask for the passphrase: `ask` resolves to what the user types, or to null; `end` says that it was right.
export function onPassphrase(dialog) {
  passphrase = dialog;
}

export class ApiError extends Error {
  constructor(status, error) {
    super(error.what);
    this.status = status;
    Object.assign(this, { where: '', todo: '', code: '', ...error });
  }
}

async function call(path, options = {}) {
  let response;
  try {
    response = await fetch(path, {
      cache: 'no-store', ...options, headers: { Authorization: `Bearer ${token}`, ...options.headers },
    });
  } catch {
    throw new ApiError(0, { what: 'The server does not answer', todo: 'Start `ralph web` again.' });
  }
  if (response.ok || response.status === 304) return response;
  const body = await response.json().catch(() => ({}));
  throw new ApiError(response.status, body.error || { what: `The server answered ${response.status}` });
}

export async function get(path) {
  return (await call(path)).json();
}

const etags = new Map();

// The same data as before if nothing changed.
export async function getTagged(path) {
  const known = etags.get(path);
  const response = await call(path, known ? { headers: { 'If-None-Match': known.tag } } : {});
  if (response.status === 304) return known.data;
  const data = await response.json();
  if (etags.size > 50) etags.clear();
  etags.set(path, { tag: response.headers.get('etag'), data });
  return data;
}

async function post(path, body, once) {
  const response = await call(path, {
    method: 'POST',
    body: JSON.stringify(body),
    headers: { 'Content-Type': 'application/json', 'X-Ralph-Proof': proof, 'Idempotency-Key': once },
  });
  return response.json();
}

// Do something with a run.
export function act(run, action, body = {}) {
  return send(`/api/runs/${encodeURIComponent(run)}/${action}`, body);
}

// Send something. If it needs the passphrase, ask for it once and try again.
export async function send(path, body) {
  const once = crypto.randomUUID ? crypto.randomUUID() : String(Math.random());
  try {
    return await post(path, body, once);
  } catch (error) {
    if (error.code !== 'passphrase') throw error;
    await unlock();
    return post(path, body, once);
  }
}

async function unlock() {
  let problem = '';
  for (;;) {
    const text = await passphrase.ask(problem);
    if (text === null) throw new ApiError(403, { what: 'Nothing was done', code: 'cancelled' });
    try {
      proof = (await post('/api/unlock', { passphrase: text }, '')).proof;
      passphrase.end();
      return;
    } catch (wrong) {
      if (wrong.status !== 403) { passphrase.end(); throw wrong; }
      problem = wrong.message;
    }
  }
}

// Connect again now, instead of after the wait.
export function retryNow() {
  for (const wake of [...waiting]) wake();
}
window.addEventListener('online', retryNow);

function waitForRetry(seconds) {
  return new Promise((resolve) => {
    let timer = 0;
    const wake = () => { clearTimeout(timer); waiting.delete(wake); resolve(); };
    timer = setTimeout(wake, seconds * 1000);
    waiting.add(wake);
  });
}

// Server-sent events by fetch, because EventSource sends no Authorization. Comes back with the id of the last event.
export function stream(query, { onEvent, onState }) {
  const ending = new AbortController();
  let last = '';
  let failures = 0;

  async function read() {
    const headers = { Authorization: `Bearer ${token}`, Accept: 'text/event-stream' };
    if (last) headers['Last-Event-ID'] = last;
    const response = await fetch(`/api/stream?${query}`, { headers, signal: ending.signal, cache: 'no-store' });
    if (!response.ok) {
      const body = await response.json().catch(() => ({}));
      throw new ApiError(response.status, body.error || { what: `The server answered ${response.status}` });
    }
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      failures = 0;
      onState({ connected: true });
      const frames = (rest + value).split('\n\n');
      rest = frames.pop();
      for (const text of frames) take(text);
    }
  }

  function take(text) {
    let kind = 'message';
    let data = '';
    for (const line of text.split('\n')) {
      if (line.startsWith('id: ')) last = line.slice(4);
      else if (line.startsWith('event: ')) kind = line.slice(7);
      else if (line.startsWith('data: ')) data += line.slice(6);
    }
    if (data) onEvent(kind, JSON.parse(data));
  }

  async function loop() {
    while (!ending.signal.aborted) {
      try {
        await read();
      } catch (error) {
        if (ending.signal.aborted) return;
        if (error.status === 401 || error.status === 404) { onState({ connected: false, error }); return; }
      }
      if (ending.signal.aborted) return;
      const wait = RETRIES[Math.min(failures, RETRIES.length - 1)];
      failures += 1;
      if (failures > 1) onState({ connected: false, retry: wait });
      await waitForRetry(wait);
    }
  }

  loop();
  return () => ending.abort();
}
