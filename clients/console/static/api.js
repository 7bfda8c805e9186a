// The server's answers. Every request is to where the page came from; those that change something carry its token.

const token = document.querySelector("meta[name=token]").content;
const trouble = document.getElementById("trouble");

async function answer(path, options) {
  let response;
  try {
    response = await fetch(`/api${path}`, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw tell(new Error("the console does not answer"));
  }
  if (response.ok) { trouble.hidden = true; return response; }
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
  headers: { "content-type": "application/json", "x-console-token": token },
  body: JSON.stringify(body),
})).json();

// Lines of JSON as they come.
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

// Call `look` now and again until the screen is left; a page that is not seen asks for nothing.
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
