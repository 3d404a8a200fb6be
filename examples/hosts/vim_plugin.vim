" Tools for what is open in Vim: buffers, edits, the quickfix list.
"
" Beside your editing, over HTTP: copy mcp_ref.py beside this file, and
"
"     :source /path/to/vim_plugin.vim
"     :call McpStart(8768)          hosts find it at http://127.0.0.1:8768/mcp
"     :call McpStop()
"
" Or the host starts Vim without a screen, on stdio:
"
"     {"mcpServers": {"vim": {"command": "vim", "args": ["-N", "-u", "NONE", "-es",
"         "-S", "/path/to/vim_plugin.vim", "-c", "call McpStdio()", "-c", "qa!", "FILE"]}}}
"
" Vim (with +python3) keeps the interpreter's lock while it waits for keys, so threads
" stand still. A timer cures it: it sleeps 5 ms, in which they run, and then calls what
" they have put into a queue. The same works in WeeChat.

python3 << trim END
import queue
import signal
import sys
import threading
import time
from pathlib import Path

import vim

HERE = Path(vim.eval("expand('<sfile>:p')")).resolve()
sys.path += [str(HERE.parents[n]) for n in (0, 2)]  # beside this file, or in a checkout
from mcp_ref import Endpoint, Server, http_server

waiting = queue.SimpleQueue()


def find(name: str):
    for buffer in vim.buffers:
        if Path(buffer.name).name == name or buffer.name == name:
            return buffer
    raise ValueError(f"there is no buffer {name}")


def list_buffers() -> list[dict]:
    """List the buffers: name, number of lines, and whether they have unsaved changes."""
    return [
        {"name": one.name, "lines": len(one), "modified": bool(one.options["modified"])}
        for one in vim.buffers
    ]


def read_lines(name: str, first: int = 1, last: int = 200) -> str:
    """Read lines of a buffer; each has its number before it."""
    lines = find(name)[first - 1 : last]
    return "\n".join(f"{first + n}\t{line}" for n, line in enumerate(lines))


def edit_lines(name: str, first: int, last: int, text: str) -> str:
    """Replace lines of a buffer; `u` undoes it. Lines last + 1 and on stay."""
    buffer = find(name)
    buffer[first - 1 : last] = text.splitlines()
    return f"{name} has {len(buffer)} lines."


def set_quickfix(places: list[dict]) -> str:
    """Show places to the user: dicts with filename, lnum and text."""
    vim.Function("setqflist")(places)
    return f"The quickfix list has {len(places)} entries."


def make_server(**options):
    server = Server("vim", instructions="The buffers of Vim.", **options)
    for function in (list_buffers, read_lines, edit_lines, set_quickfix):
        server.tool(function)
    return server


# Vim's own sys.stderr shows errors, which only its main thread may do.
def start(port: int):
    global httpd
    sys.stderr = open(vim.eval("tempname()"), "w", 1)  # :py3 print(sys.stderr.name)
    httpd = http_server(Endpoint(make_server(run=waiting.put)), port=port)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()


def stdio():
    sys.stderr = sys.__stderr__
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # Vim's handlers would do nothing here
    make_server().run_here([])


def call_what_waits():
    time.sleep(0.005)
    while not waiting.empty():
        waiting.get()()
END

function! McpStart(port)
  python3 start(int(vim.eval("a:port")))
  let s:timer = timer_start(20, {-> py3eval("call_what_waits()")}, {"repeat": -1})
endfunction

function! McpStop()
  call timer_stop(s:timer)
  python3 httpd.close()
endfunction

function! McpStdio()
  python3 stdio()
endfunction
