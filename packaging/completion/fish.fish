# Completion for fish. In a session: mailstead completion fish | source
# For good: mailstead completion fish > ~/.config/fish/completions/mailstead.fish

function __mailstead_candidates
	set -l words (commandline -opc)
	set -l current (commandline -ct)
	$words[1] __complete $words[2..-1] "$current" 2>/dev/null
end

function __mailstead_wants_files
	__mailstead_candidates | string match -q ':files'
end

complete -c mailstead -e
complete -c mailstead -f -a '(__mailstead_candidates | string match -v ":files")'
complete -c mailstead -n __mailstead_wants_files -F
