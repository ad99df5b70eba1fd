package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Groups of commands, in the order in which help lists them.
const (
	groupRun       = "Run"
	groupSetUp     = "Set up"
	groupMail      = "Mail"
	groupData      = "Data"
	groupDeveloper = "Developer"
)

var commandGroups = []string{groupRun, groupSetUp, groupMail, groupData, groupDeveloper}

// inGroup puts commands into a group of help.
func inGroup(group string, list ...*cli.Command) []*cli.Command {
	for _, cmd := range list {
		cmd.Category = group
	}
	return list
}

// groupExamples has one command line for each group of commands.
var groupExamples = map[string]string{
	groupRun:       "mailstead serve --data ./data",
	groupSetUp:     "mailstead check-host --hostname mail.example.com",
	groupMail:      "mailstead log --mailbox ann@example.com --since 1h",
	groupData:      "mailstead backup /srv/backups/",
	groupDeveloper: "mailstead call connect_domains domains=example.com --wait",
}

// commandExamples has one command line for each command that does something, by its full name.
var commandExamples = map[string]string{
	"serve":               "mailstead serve --data /var/lib/mailstead",
	"init":                "mailstead init --data ./data --owner-email you@example.com",
	"setup":               "mailstead setup --hostname mail.example.com --email you@example.com",
	"check-host":          "mailstead check-host --hostname mail.example.com",
	"doctor":              "mailstead doctor --data /var/lib/mailstead",
	"status":              "mailstead status --data /var/lib/mailstead",
	"settings list":       "mailstead settings list",
	"settings get":        "mailstead settings get limits.recipients_per_mailbox_per_day",
	"settings set":        "mailstead settings set limits.recipients_per_mailbox_per_day 2000",
	"settings unset":      "mailstead settings unset limits.recipients_per_mailbox_per_day",
	"settings test":       "mailstead settings test relay.r1",
	"account create":      "mailstead account create --owner-email ann@example.org",
	"account list":        "mailstead account list --csv",
	"account suspend":     "mailstead account suspend ann@example.org",
	"account resume":      "mailstead account resume ann@example.org",
	"account delete":      "mailstead account delete ann@example.org --yes",
	"domain add":          "mailstead domain add example.com --wait",
	"domain list":         "mailstead domain list",
	"domain show":         "mailstead domain show example.com",
	"domain delete":       "mailstead domain delete example.com",
	"domain claim":        "mailstead domain claim example.com --account ann@example.org",
	"mailbox create":      "mailstead mailbox create ann@example.com --name \"Ann Berg\"",
	"mailbox list":        "mailstead mailbox list --domain example.com",
	"mailbox password":    "mailstead mailbox password ann@example.com",
	"mailbox delete":      "mailstead mailbox delete ann@example.com",
	"queue list":          "mailstead queue list",
	"queue retry":         "mailstead queue retry --all",
	"queue cancel":        "mailstead queue cancel msg_01k9a2b3c4d5e6f7g8h9j0k1m2",
	"log":                 "mailstead log --mailbox ann@example.com --since 1h",
	"job parked":          "mailstead job parked",
	"job resume":          "mailstead job resume --all",
	"token create":        "mailstead token create --user you@example.com --permissions read,write --name shop",
	"user reset-password": "mailstead user reset-password you@example.com",
	"rotate-key":          "mailstead rotate-key --data /var/lib/mailstead",
	"call":                "mailstead call create_email_user email=ann@example.com",
	"backup":              "mailstead backup /srv/backups/",
	"backup list":         "mailstead backup list /srv/backups",
	"backup verify":       "mailstead backup verify /srv/backups",
	"restore":             "mailstead restore /srv/backups --data ./restored --at 2026-11-24T12:00:00Z",
	"rehearse":            "mailstead rehearse --data /var/lib/mailstead",
	"check":               "mailstead check --data /var/lib/mailstead",
	"import accounts":     "mailstead import accounts passwords.csv",
	"import imap":         "mailstead import imap --host imap.example.net --user ann --password-file pw --to ann@example.com",
	"import maildir":      "mailstead import maildir ./Maildir --to ann@example.com",
	"import mbox":         "mailstead import mbox archive.mbox --to ann@example.com --folder Archive",
	"import settings":     "mailstead import settings ./export/account.json",
	"export maildir":      "mailstead export maildir ./export --all",
	"export mbox":         "mailstead export mbox ./export --from ann@example.com",
	"profile cpu":         "mailstead profile cpu --to cpu.pprof --seconds 30",
	"profile heap":        "mailstead profile heap --to heap.pprof",
	"profile goroutine":   "mailstead profile goroutine --to goroutines.pprof",
	"profile trace":       "mailstead profile trace --to server.trace --seconds 5",
	"openapi":             "mailstead openapi > openapi.json",
	"completion":          "source <(mailstead completion bash)",
	"manual":              "mailstead manual ./man",
	"version":             "mailstead version --licenses",
}

// flagGroups sorts the flags of serve, which setup and check-host take too, into groups of help.
// Flags that are in no group come first.
var flagGroups = []struct {
	title string
	names []string
}{
	{"Common options", []string{"data", "hostname", "public-ip", "outbound", "log-level"}},
	{"Listeners", []string{"http", "http-tls", "smtp", "submission", "submissions", "imap", "imaps", "dns"}},
	{"Certificates", []string{"acme-email", "acme-directory", "tls-cert", "tls-key", "ca-file"}},
	{"Network", []string{"resolver", "mx-port", "trusted-proxy", "proxy-protocol", "allow-private-destinations"}},
	{"Process", []string{"log-format", "ready-file", "migrate"}},
}

// manyFlags is the number of flags from which help sorts those of a command into groups.
const manyFlags = 20

// groupedFlags returns the flags of a command in the groups in which help lists them.
func groupedFlags(cmd *cli.Command) (titles []string, groups [][]cli.Flag) {
	all := flagsOf(cmd)
	if len(all) < manyFlags {
		return []string{"Options"}, [][]cli.Flag{all}
	}
	placed := map[string]bool{}
	var first []cli.Flag
	for _, g := range flagGroups {
		var list []cli.Flag
		for _, name := range g.names {
			for _, f := range all {
				if f.Names()[0] == name {
					list, placed[name] = append(list, f), true
				}
			}
		}
		titles, groups = append(titles, g.title), append(groups, list)
	}
	for _, f := range all {
		if !placed[f.Names()[0]] {
			first = append(first, f)
		}
	}
	return append([]string{"Options"}, titles...), append([][]cli.Flag{first}, groups...)
}

// showHelp writes the help of cmd, or of the subcommand that topic names.
func showHelp(w io.Writer, cmd *cli.Command, topic []string) error {
	for i, word := range topic {
		if cmd.Name == "call" && i == len(topic)-1 {
			return showOperation(w, word)
		}
		next := subcommand(cmd, word)
		if next == nil {
			return unknownCommand(cmd, word)
		}
		cmd = next
	}
	p := newPrinter(w)
	fmt.Fprintf(w, "%s - %s\n\n%s\n  %s\n", cmd.HelpName, cmd.Usage, p.bold("Usage"), usageLine(cmd))
	_, path, isCommand := strings.Cut(cmd.HelpName, " ")
	if example := commandExamples[path]; example != "" {
		fmt.Fprintf(w, "\n%s\n  %s\n", p.bold("Example"), example)
	}
	switch {
	case len(cmd.Subcommands) > 0 && isCommand:
		fmt.Fprintf(w, "\n%s\n", p.bold("Commands"))
		listCommands(w, cmd.Subcommands)
	case len(cmd.Subcommands) > 0:
		for _, group := range commandGroups {
			fmt.Fprintf(w, "\n%s%s\n", p.bold(group), p.dim("   for example: "+groupExamples[group]))
			listCommands(w, slices.DeleteFunc(slices.Clone(cmd.Subcommands), func(c *cli.Command) bool { return c.Category != group }))
		}
	}
	titles, groups := groupedFlags(cmd)
	for i, title := range titles {
		if len(groups[i]) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s\n", p.bold(title))
		var names, texts []string
		for _, f := range groups[i] {
			name, text := flagText(f)
			names, texts = append(names, name), append(texts, text)
		}
		writeColumns(w, names, texts)
	}
	if !isCommand {
		fmt.Fprint(w, "\n`mailstead help COMMAND` explains a command, `mailstead help call OPERATION` an operation of the API.\nEvery option of serve may also be set in mailstead.toml or in the environment, such as MAILSTEAD_DATA for --data.\n")
	}
	return nil
}

// flagText returns how a flag is written and what it does.
func flagText(f cli.Flag) (name, text string) {
	name, text, _ = strings.Cut(f.String(), "\t")
	return name, strings.NewReplacer(" (default: false)", "", " (default: 0)", "", " (default: 0s)", "").Replace(text)
}

func listCommands(w io.Writer, list []*cli.Command) {
	var names, texts []string
	for _, cmd := range list {
		if !cmd.Hidden {
			names, texts = append(names, cmd.Name), append(texts, cmd.Usage)
		}
	}
	writeColumns(w, names, texts)
}

// longestName is the number of characters of a name up to which its text stands beside it.
const longestName = 34

// writeColumns writes names with their texts beside them. The text of a name that is very long
// stands on the next line.
func writeColumns(w io.Writer, names, texts []string) {
	width := 0
	for _, name := range names {
		if n := textWidth(name); n <= longestName {
			width = max(width, n)
		}
	}
	for i, name := range names {
		switch {
		case texts[i] == "":
			fmt.Fprintf(w, "  %s\n", name)
		case textWidth(name) > width:
			fmt.Fprintf(w, "  %s\n  %*s  %s\n", name, width, "", texts[i])
		default:
			fmt.Fprintf(w, "  %s%*s  %s\n", name, width-textWidth(name), "", texts[i])
		}
	}
}
