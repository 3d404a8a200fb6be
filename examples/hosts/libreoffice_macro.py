"""Tools for the spreadsheet that is open in LibreOffice: cells, recalculation, PDF.

Copy this file into the folder Scripts/python of your LibreOffice profile (on Linux
~/.config/libreoffice/4/user/Scripts/python), and mcp_ref.py into the folder pythonpath
inside it; Debian needs the package libreoffice-script-provider-python. Run the macro
`start` in Tools > Macros > Run Macro, and `stop` to end it. Hosts find it at
http://127.0.0.1:8769/mcp (LIBREOFFICE_MCP_PORT sets another port).

Or the host starts LibreOffice without a window, on stdio, with this as its last
argument, after "--headless" and the file:

    vnd.sun.star.script:libreoffice_macro.py$serve_stdio?language=Python&location=user

Documents may only be touched on the main thread. LibreOffice calls there what its
service AsyncCallback is given. On stdio, run_here() keeps that thread.
"""

# The application's own modules have no types.
# mypy: disable-error-code="import-not-found, import-untyped, misc, no-any-return"

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any, Union

import uno
import unohelper
from com.sun.star.awt import XCallback
from com.sun.star.beans import PropertyValue

from mcp_ref import Endpoint, Server, http_server

Cell = Union[str, float]


def service(name: str) -> Any:
    context = uno.getComponentContext()
    return context.ServiceManager.createInstanceWithContext(name, context)


def spreadsheet() -> Any:
    desktop = service("com.sun.star.frame.Desktop")
    for document in desktop.Components:
        if document.supportsService("com.sun.star.sheet.SpreadsheetDocument"):
            return document
    raise ValueError("no spreadsheet is open")


def cells(area: str) -> Any:
    """Return the range that "Sheet1.A1:B2" means, or A1:B2 on the first sheet."""
    sheets = spreadsheet().Sheets
    name, _, place = area.rpartition(".")
    if name and not sheets.hasByName(name):
        raise ValueError(f"there is no sheet {name}")
    sheet = sheets.getByName(name) if name else sheets.getByIndex(0)
    return sheet.getCellRangeByName(place)


def read_range(area: str) -> list[list[Any]]:
    """Read a range such as A1:C9 or Sheet2.A1:C9: rows of numbers and texts."""
    return [list(row) for row in cells(area).DataArray]


def write_range(area: str, rows: list[list[Cell]]) -> str:
    """Write rows of numbers, texts and formulas ("=A1*2") to a range of that size."""
    cells(area).FormulaArray = tuple(tuple(map(str, row)) for row in rows)
    return f"{area} is written."


def recalculate() -> str:
    """Calculate all formulas again."""
    spreadsheet().calculateAll()
    return "Calculated."


def save_as_pdf(path: str) -> str:
    """Write the spreadsheet to a PDF file."""
    kind = PropertyValue(Name="FilterName", Value="calc_pdf_Export")
    spreadsheet().storeToURL(Path(path).absolute().as_uri(), (kind,))
    return f"{path}: {os.path.getsize(path)} bytes"


def make_server(**options: Any) -> Server:
    server = Server("libreoffice", instructions="The open spreadsheet.", **options)
    for function in (read_range, write_range, recalculate, save_as_pdf):
        server.tool(function)
    return server


class Caller(unohelper.Base, XCallback):
    """Calls a function on LibreOffice's main thread."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def notify(self, data: Any) -> None:
        self.function()


def start(event: Any = None) -> None:
    stop()
    callback = service("com.sun.star.awt.AsyncCallback")

    def run(function: Any) -> None:
        callback.addCallback(Caller(function), None)

    port = int(os.environ.get("LIBREOFFICE_MCP_PORT", "8769"))
    httpd = http_server(Endpoint(make_server(run=run)), port=port)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    # Each run of a macro may import this file again; the module sys stays.
    vars(sys)["mcp_httpd"] = httpd


def stop(event: Any = None) -> None:
    if hasattr(sys, "mcp_httpd"):
        sys.mcp_httpd.close()
        del sys.mcp_httpd


def serve_stdio(event: Any = None) -> None:
    make_server().run_here([])
    service("com.sun.star.frame.Desktop").terminate()


g_exportedScripts = start, stop, serve_stdio
