# Sourced by scripts/demo and scripts/test: makes .venv and installs the project into it.
# shellcheck shell=bash
#
#   make_venv EXTRAS    EXTRAS is "" or a list such as "test"
#   add_extra EXTRA     one that can be done without, if the registry gives it
#
# Afterwards "$python" is the interpreter of .venv.  A .venv that is complete and
# belongs to this place, this interpreter and this pyproject.toml is used again.

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

find_python() {
    local name names=(python3 python3.13 python3.12 python3.11)
    if [ -n "${PYTHON:-}" ]; then names=("$PYTHON"); fi
    for name in "${names[@]}"; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    say "needs Python 3.11 or newer, ${names[*]} is not; set PYTHON=/path/to/python"
    return 1
}

make_venv() {
    local extras=$1 base stamp wanted
    base=$(find_python)
    stamp=.venv/installed-${extras:-plain}
    wanted="$(cksum <pyproject.toml) $base $PWD"
    python=$PWD/.venv/bin/python
    if [ -f "$stamp" ] && [ "$(<"$stamp")" = "$wanted" ] && "$python" -c 'import ptss_mp' 2>/dev/null; then
        say "using .venv ($("$python" -V))"
        return
    fi
    if ! "$python" -m pip --version >/dev/null 2>&1 || ! grep -qsxF "$base $PWD" .venv/made-for; then
        say "making .venv with $base ($("$base" -V))"
        rm -rf .venv
        new_venv "$base"
    fi
    say "installing the project${extras:+ with the extra: $extras}"
    rm -f "$stamp"
    "$python" -m pip install --quiet --disable-pip-version-check --editable ".${extras:+[$extras]}" >&2
    printf '%s\n' "$wanted" >"$stamp"
}

add_extra() {
    local extra=$1 stamp=.venv/installed-$1 wanted
    wanted=$(cksum <pyproject.toml)
    if [ -f "$stamp" ] && [ "$(<"$stamp")" = "$wanted" ]; then return; fi
    say "installing the extra: $extra"
    if "$python" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 15 \
        --only-binary numpy,scipy,scikit-learn --editable ".[$extra]" >&2; then
        printf '%s\n' "$wanted" >"$stamp"
    else
        say "the extra $extra is not to be had here: what needs it will be skipped"
    fi
}

# Some systems ship venv without ensurepip; the pip that is there can serve the new environment.
new_venv() {
    if ! "$1" -m venv .venv >/dev/null 2>&1; then
        rm -rf .venv
        "$1" -m venv --without-pip .venv
        "$1" -m pip --python .venv/bin/python install --quiet --disable-pip-version-check pip >&2
    fi
    printf '%s\n' "$1 $PWD" >.venv/made-for
}
