// Requests to the page's own server, with the console's token.

// A console that requires its token does not put it into the page: the address that it printed has it (#token=…), or the
// user types it. It is kept for this tab and port alone, as a cookie would be sent to every port of this host.
const brought = /^#token=([\w-]+)$/.exec(location.hash);
if (brought) {
  sessionStorage.setItem("console-token", brought[1]);
  history.replaceState(null, "", "#/");
}
const own = document.querySelector("meta[name=token]").content;
let token = own || sessionStorage.getItem("console-token") || "";
let isDeclined = false;
const trouble = document.getElementById("trouble");

function askForToken() {
  const typed = isDeclined ? null : prompt("This console requires its token. It printed an address with it at its start.");
  isDeclined ||= !typed;
  if (!typed) return;
  token = typed.trim().replace(/^.*#token=/, "");
  sessionStorage.setItem("console-token", token);
}

async function answer(path, options = {}) {
  const sent = token;
  let response;
  try {
    response = await fetch(`/api${path}`, { ...options, headers: { ...options.headers, "x-console-token": sent } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw tell(new Error("the console does not answer"));
  }
  if (response.ok) { trouble.hidden = true; return response; }
  if (response.status === 401) {
    if (token === sent) askForToken();
    if (token !== sent) return answer(path, options);
  }
  const said = await response.json().catch(() => ({}));
  const error = new Error(said.error ?? `${response.status} ${response.statusText}`);
  throw response.status >= 500 ? tell(error) : error;
}

function tell(error) {
  trouble.textContent = error.message;
  trouble.hidden = false;
  return error;
}

export const get = async (path, signal) => (await answer(path, { signal })).json();

export const post = async (path, body) => (await answer(path, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify(body),
})).json();

// Lines of JSON as they arrive.
export async function* lines(path, signal) {
  const reader = (await answer(path, { signal })).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part);
  }
}

// Call `look` periodically until the screen is left; a hidden page sends no requests.
export async function every(seconds, signal, look) {
  while (!signal.aborted) {
    if (!document.hidden) {
      try { await look(); } catch (error) { if (signal.aborted || error.name === "AbortError") return; }
    }
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, seconds * 1000);
      signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
    });
  }
}

export const part = encodeURIComponent;

// A link cannot carry a token: where there is none in the page, the file is fetched and handed to the browser.
export async function download(event, path) {
  if (own && event) return;
  event?.preventDefault();
  const response = await answer(path);
  const name = /filename="([^"]+)"/.exec(response.headers.get("content-disposition") ?? "")?.[1] ?? "value.bin";
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
