# Completion of hapax for bash. Made by `hapax docs completion`; change the command table instead.
_hapax_files() {
    compopt -o filenames 2>/dev/null
    local line
    while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen "$1" -- "$2")
}

_hapax() {
    local cur=${COMP_WORDS[COMP_CWORD]} before=$((COMP_CWORD - 1)) path= i
    COMPREPLY=()
    if [[ $cur == = ]]; then
        cur=
    elif [[ ${COMP_WORDS[before]} == = ]]; then
        before=$((before - 1))
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$path ${COMP_WORDS[i]}" in
        ' serve') path=' serve' ;;
        ' check') path=' check' ;;
        ' keys') path=' keys' ;;
        ' keys list') path=' keys list' ;;
        ' keys show') path=' keys show' ;;
        ' keys resolve') path=' keys resolve' ;;
        ' keys forget') path=' keys forget' ;;
        ' stats') path=' stats' ;;
        ' migrate') path=' migrate' ;;
        ' run') path=' run' ;;
        ' call') path=' call' ;;
        ' drill') path=' drill' ;;
        ' bench') path=' bench' ;;
        ' docs') path=' docs' ;;
        ' docs man') path=' docs man' ;;
        ' docs completion') path=' docs completion' ;;
        ' docs config') path=' docs config' ;;
        ' help') path=' help' ;;
        ' version') path=' version' ;;
        esac
    done
    case "$path ${COMP_WORDS[before]}" in
    ' serve --config' | ' serve -c') _hapax_files -f "$cur"; return ;;
    ' serve --to' | ' serve -t') :; return ;;
    ' serve --listen' | ' serve -l') :; return ;;
    ' serve --admin' | ' serve -a') :; return ;;
    ' serve --store' | ' serve -s') :; return ;;
    ' serve --missing') mapfile -t COMPREPLY < <(compgen -W 'reject pass' -- "$cur"); return ;;
    ' keys list --store' | ' keys list -s') :; return ;;
    ' keys list --scope') :; return ;;
    ' keys list --key' | ' keys list -k') :; return ;;
    ' keys list --state') mapfile -t COMPREPLY < <(compgen -W 'running done unknown' -- "$cur"); return ;;
    ' keys list --limit' | ' keys list -n') :; return ;;
    ' keys list --after') :; return ;;
    ' keys show --store' | ' keys show -s') :; return ;;
    ' keys show --id') :; return ;;
    ' keys resolve --store' | ' keys resolve -s') :; return ;;
    ' keys resolve --id') :; return ;;
    ' keys resolve --status') :; return ;;
    ' keys resolve --header' | ' keys resolve -H') :; return ;;
    ' keys resolve --body' | ' keys resolve -b') :; return ;;
    ' keys forget --store' | ' keys forget -s') :; return ;;
    ' keys forget --id') :; return ;;
    ' stats --store' | ' stats -s') :; return ;;
    ' migrate --store' | ' migrate -s') :; return ;;
    ' migrate --from') :; return ;;
    ' migrate --role') :; return ;;
    ' run --key' | ' run -k') :; return ;;
    ' run --ttl') :; return ;;
    ' run --wait' | ' run -w') :; return ;;
    ' run --timeout' | ' run -t') :; return ;;
    ' run --kill-after') :; return ;;
    ' run --on-unknown') mapfile -t COMPREPLY < <(compgen -W 'hold retry' -- "$cur"); return ;;
    ' run --keep-output') :; return ;;
    ' run --lease') :; return ;;
    ' run --store' | ' run -s') :; return ;;
    ' call --op') :; return ;;
    ' call --header' | ' call -H') :; return ;;
    ' call --data' | ' call -d') :; return ;;
    ' call --key' | ' call -k') :; return ;;
    ' call --key-from') :; return ;;
    ' call --header-name') :; return ;;
    ' call --key-field') :; return ;;
    ' call --attempts' | ' call -n') :; return ;;
    ' call --max-time' | ' call -m') :; return ;;
    ' call --timeout' | ' call -t') :; return ;;
    ' call --backoff') :; return ;;
    ' call --backoff-max') :; return ;;
    ' call --key-lifetime') :; return ;;
    ' call --ttl') :; return ;;
    ' call --cacert') _hapax_files -f "$cur"; return ;;
    ' call --output' | ' call -o') _hapax_files -f "$cur"; return ;;
    ' call --store' | ' call -s') :; return ;;
    ' drill --data' | ' drill -d') :; return ;;
    ' drill --header' | ' drill -H') :; return ;;
    ' drill --key-header') :; return ;;
    ' drill --profile' | ' drill -p') mapfile -t COMPREPLY < <(compgen -W 'draft stripe webhook queue' -- "$cur"); return ;;
    ' drill --effect-url' | ' drill -e') :; return ;;
    ' drill --effect-cmd') :; return ;;
    ' drill --effect-log') _hapax_files -f "$cur"; return ;;
    ' drill --effect-header') :; return ;;
    ' drill --tenant-header') :; return ;;
    ' drill --other-url') :; return ;;
    ' drill --other') :; return ;;
    ' drill --fail') :; return ;;
    ' drill --restart-cmd') :; return ;;
    ' drill --events') _hapax_files -d "$cur"; return ;;
    ' drill --final-url') :; return ;;
    ' drill --reset-cmd') :; return ;;
    ' drill --times' | ' drill -n') :; return ;;
    ' drill --rounds') :; return ;;
    ' drill --settle') :; return ;;
    ' drill --settle-max') :; return ;;
    ' drill --timeout') :; return ;;
    ' drill --recover') :; return ;;
    ' drill --requests-max') :; return ;;
    ' drill --only') :; return ;;
    ' drill --skip') :; return ;;
    ' drill --ignore-header') :; return ;;
    ' drill --seed') :; return ;;
    ' drill --ca') _hapax_files -f "$cur"; return ;;
    ' drill --junit') _hapax_files -f "$cur"; return ;;
    ' drill --tap') _hapax_files -f "$cur"; return ;;
    ' drill --html') _hapax_files -f "$cur"; return ;;
    ' bench --store' | ' bench -s') :; return ;;
    ' bench --dir' | ' bench -d') _hapax_files -d "$cur"; return ;;
    ' bench --seconds' | ' bench -n') :; return ;;
    ' bench --threads' | ' bench -t') :; return ;;
    ' bench --keys-before' | ' bench -k') :; return ;;
    ' bench --repeats' | ' bench -r') :; return ;;
    ' bench --body' | ' bench -b') :; return ;;
    esac
    [[ $cur == -* ]] && path+=' --'
    case $path in
    ' --') mapfile -t COMPREPLY < <(compgen -W '--help --version' -- "$cur") ;;
    '') mapfile -t COMPREPLY < <(compgen -W 'serve check keys stats migrate run call drill bench docs help version ' -- "$cur") ;;
    ' serve --') mapfile -t COMPREPLY < <(compgen -W '--config --to --listen --admin --store --missing --allow-unsafe-store --help' -- "$cur") ;;
    ' check --') mapfile -t COMPREPLY < <(compgen -W '--json --print --help' -- "$cur") ;;
    ' check') _hapax_files -f "$cur" ;;
    ' keys --') mapfile -t COMPREPLY < <(compgen -W '--help' -- "$cur") ;;
    ' keys') mapfile -t COMPREPLY < <(compgen -W 'list show resolve forget ' -- "$cur") ;;
    ' keys list --') mapfile -t COMPREPLY < <(compgen -W '--store --scope --key --state --limit --after --id --json --help' -- "$cur") ;;
    ' keys show --') mapfile -t COMPREPLY < <(compgen -W '--store --id --body --json --help' -- "$cur") ;;
    ' keys show') : ;;
    ' keys resolve --') mapfile -t COMPREPLY < <(compgen -W '--store --id --released --done --status --header --body --json --help' -- "$cur") ;;
    ' keys resolve') : ;;
    ' keys forget --') mapfile -t COMPREPLY < <(compgen -W '--store --id --yes --json --help' -- "$cur") ;;
    ' keys forget') : ;;
    ' stats --') mapfile -t COMPREPLY < <(compgen -W '--store --json --help' -- "$cur") ;;
    ' migrate --') mapfile -t COMPREPLY < <(compgen -W '--store --print --from --role --json --help' -- "$cur") ;;
    ' run --') mapfile -t COMPREPLY < <(compgen -W '--key --ttl --wait --timeout --kill-after --on-unknown --keep-failures --ignore-args --keep-output --lease --store --quiet --help' -- "$cur") ;;
    ' run') : ;;
    ' call --') mapfile -t COMPREPLY < <(compgen -W '--op --header --data --key --key-from --header-name --key-field --quote-key --attempts --max-time --timeout --backoff --backoff-max --key-lifetime --ttl --cacert --include --output --json --verbose --quiet --store --help' -- "$cur") ;;
    ' call') : ;;
    ' drill --') mapfile -t COMPREPLY < <(compgen -W '--data --header --key-header --bare-keys --profile --effect-url --effect-cmd --effect-log --effect-header --tenant-header --other-url --other --fail --restart-cmd --events --final-url --reset-cmd --times --rounds --settle --settle-max --timeout --recover --requests-max --only --skip --ignore-header --seed --ca --insecure --yes-remote --dry-run --list --json --junit --tap --html --help' -- "$cur") ;;
    ' drill') : ;;
    ' bench --') mapfile -t COMPREPLY < <(compgen -W '--store --existing --dir --seconds --threads --keys-before --repeats --body --json --help' -- "$cur") ;;
    ' docs --') mapfile -t COMPREPLY < <(compgen -W '--help' -- "$cur") ;;
    ' docs') mapfile -t COMPREPLY < <(compgen -W 'man completion config ' -- "$cur") ;;
    ' docs man --') mapfile -t COMPREPLY < <(compgen -W '--help' -- "$cur") ;;
    ' docs man') _hapax_files -d "$cur" ;;
    ' docs completion --') mapfile -t COMPREPLY < <(compgen -W '--help' -- "$cur") ;;
    ' docs config --') mapfile -t COMPREPLY < <(compgen -W '--help' -- "$cur") ;;
    ' help --') mapfile -t COMPREPLY < <(compgen -W '--help' -- "$cur") ;;
    ' help') mapfile -t COMPREPLY < <(compgen -W 'serve check keys stats migrate run call drill bench docs help version ' -- "$cur") ;;
    ' version --') mapfile -t COMPREPLY < <(compgen -W '--json --help' -- "$cur") ;;
    esac
}

complete -F _hapax hapax
