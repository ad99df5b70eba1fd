# Completion for bash. In a session: source <(mailstead completion bash)
# For good: mailstead completion bash > /usr/share/bash-completion/completions/mailstead

_mailstead() {
	local cur line value before IFS=$'\n'
	local -a words
	# bash splits words at "=", ":" and "@" too. They are joined again: arguments are key=value and
	# addresses.
	if declare -F _get_comp_words_by_ref >/dev/null; then
		local cword
		_get_comp_words_by_ref -n =:@ words cword
		words=("${words[@]:1:cword}")
	else
		local i
		for ((i = 1; i <= COMP_CWORD; i++)); do
			local word=${COMP_WORDS[i]} last=$((${#words[@]} - 1))
			if ((last >= 0)) && [[ $word == [=:@]* || ${words[last]} == *[=:@] && ${COMP_WORDS[i - 1]} == [=:@]* ]]; then
				words[last]+=$word
			else
				words+=("$word")
			fi
		done
	fi
	cur=${words[${#words[@]} - 1]}
	COMPREPLY=()
	# bash replaces only what stands after the last "=" or ":", or from the last "@" on.
	before=
	local breaks=${COMP_WORDBREAKS//[!=:@]/}
	if [[ -n $breaks && $cur == *["$breaks"]* ]]; then
		before=${cur%"${cur##*["$breaks"]}"}
		before=${before%@}
	fi
	while read -r line; do
		value=${line%%$'\t'*}
		case $value in
		:files)
			compopt -o filenames 2>/dev/null
			COMPREPLY+=($(compgen -f -- "${cur##*=}"))
			;;
		*)
			[[ $value == *= ]] && compopt -o nospace 2>/dev/null
			COMPREPLY+=("${value#"$before"}")
			;;
		esac
	done < <("${COMP_WORDS[0]}" __complete "${words[@]}" 2>/dev/null)
}

complete -F _mailstead mailstead
