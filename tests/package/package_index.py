"""A package index on this machine with packages that hold nothing but their names: for tests that let pip install."""

import contextlib
import http.server
import pathlib
import re
import threading
import zipfile


def add_package(folder, name, version, requires=(), size=0):
    """Puts a wheel of `size` bytes and a few more into the folder."""
    dist_info = f"{name}-{version}.dist-info"
    lines = [f"Requires-Dist: {requirement}\n" for requirement in requires]
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", "")
        wheel.writestr(f"{name}/contents", bytes(size))
        wheel.writestr(f"{dist_info}/METADATA",
                       f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + "".join(lines))
        wheel.writestr(f"{dist_info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{dist_info}/RECORD", "")


class Index(http.server.BaseHTTPRequestHandler):
    """Lists the folder's wheels, and serves them also in parts, as real indexes do."""

    folder: pathlib.Path
    knows_sizes = True

    def do_HEAD(self):
        if self.knows_sizes:
            self.answer()
        else:
            self.send_error(405)

    def do_GET(self):
        self.wfile.write(self.answer())

    def answer(self):
        name = self.path.strip("/").replace("%2B", "+")
        if name.startswith("simple/"):
            project = name.removeprefix("simple/").replace("-", "_")
            wheels = [wheel.name for wheel in self.folder.glob(f"{project}-*.whl")]
            return self.send("".join(f'<a href="/{wheel}">{wheel}</a>\n' for wheel in wheels).encode(), "text/html")
        return self.send((self.folder / name).read_bytes(), "application/zip")

    def send(self, body, kind):
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        self.send_response(206 if part else 200)
        if part:
            body = body[int(part[1]):int(part[2]) + 1]
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        return body

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serve(folder, knows_sizes=True):
    """The address of an index of the folder's packages, as long as the context lasts."""
    handler = type("FolderIndex", (Index,), {"folder": folder, "knows_sizes": knows_sizes})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()
