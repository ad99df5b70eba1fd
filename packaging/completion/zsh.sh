#compdef mailstead
# Completion for zsh. In a session: source <(mailstead completion zsh)
# For good: mailstead completion zsh > "${fpath[1]}/_mailstead"

_mailstead() {
	local line value ret=1
	local -a values shown
	for line in "${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
		value=${line%%$'\t'*}
		case $value in
		'') ;;
		:files) _files && ret=0 ;;
		*=) compadd -S '' -- "$value" && ret=0 ;;
		*)
			values+=("$value")
			if [[ $line == *$'\t'* ]]; then
				shown+=("$value  -- ${line#*$'\t'}")
			else
				shown+=("$value")
			fi
			;;
		esac
	done
	(( ${#values} )) && compadd -l -d shown -a values && ret=0
	return ret
}

if [ "${funcstack[1]}" = _mailstead ]; then
	_mailstead "$@"
else
	compdef _mailstead mailstead
fi
