package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
)

func (p *Program) manualCommand() *cli.Command {
	return p.command("manual", "write the manual pages of all commands into a directory", "DIR", func(c *cli.Context, e *env) error {
		dir, err := requireArgument(c, "DIRECTORY")
		if err != nil {
			return err
		}
		return runManual(e, rootCommand(c.App), dir)
	})
}

// runManual writes the manual pages of the program and of its commands. The packages have them.
func runManual(e *env, root *cli.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return config.Mistake(err)
	}
	pages := manualPages(root)
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return e.print(nil, fmt.Sprintf("%d pages in %s\n", len(pages), dir))
}

// manualPages returns the manual pages in the language of man(7), by the names of their files: one
// of the program, and one of each of its commands with its subcommands.
func manualPages(root *cli.Command) map[string]string {
	pages := map[string]string{}
	var text strings.Builder
	beginPage(&text, root)
	fmt.Fprintf(&text, ".SH DESCRIPTION\n%s\n", roff("Mailstead is self-hosted email infrastructure in one program: SMTP, IMAP, DNS, an HTTP API, webhooks and a dashboard. It keeps everything in one data directory."))
	for _, group := range commandGroups {
		fmt.Fprintf(&text, ".SH %s COMMANDS\n", strings.ToUpper(roff(group)))
		for _, cmd := range root.Subcommands {
			if cmd.Category == group && !cmd.Hidden {
				fmt.Fprintf(&text, ".TP\n.BR %s (1)\n%s\n", roff(root.Name+"-"+cmd.Name), roff(cmd.Usage))
			}
		}
		fmt.Fprintf(&text, ".P\nExample:\n.P\n.nf\n.RS\n%s\n.RE\n.fi\n", roff(groupExamples[group]))
	}
	writeFlags(&text, root)
	text.WriteString(".SH EXIT STATUS\n0 if the command did what was asked, 1 if it failed, 2 if its options, its arguments or the settings are wrong.\n")
	text.WriteString(".SH FILES\n.TP\n.I DATA/mailstead.toml\nthe settings. Every option of\n.BR mailstead\\-serve (1)\nmay stand there, with underscores for dashes.\n")
	text.WriteString(".SH ENVIRONMENT\nEvery option of\n.BR mailstead\\-serve (1)\nmay also be set by a variable, such as\n.B MAILSTEAD_DATA\nfor\n.BR \\-\\-data .\nWith\n.B NO_COLOR\nno colours are used.\n")
	pages[root.Name+".1"] = text.String()
	for _, cmd := range root.Subcommands {
		if cmd.Hidden {
			continue
		}
		cmd = subcommand(root, cmd.Name)
		text.Reset()
		beginPage(&text, cmd)
		if len(cmd.Subcommands) == 0 || cmd.Action != nil {
			describeCommand(&text, cmd)
		}
		for _, s := range cmd.Subcommands {
			s = subcommand(cmd, s.Name)
			fmt.Fprintf(&text, ".SH %s\n%s.\n.P\n.B %s\n", strings.ToUpper(roff(s.Name)), roff(s.Usage), roff(usageLine(s)))
			describeCommand(&text, s)
		}
		text.WriteString(".SH SEE ALSO\n.BR mailstead (1)\n")
		pages[root.Name+"-"+cmd.Name+".1"] = text.String()
	}
	return pages
}

// beginPage writes the head of a page.
func beginPage(w *strings.Builder, cmd *cli.Command) {
	name := strings.ReplaceAll(cmd.HelpName, " ", "-")
	fmt.Fprintf(w, ".TH %s 1 \"\" Mailstead \"Mailstead Manual\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %s\n", strings.ToUpper(roff(name)), roff(name), roff(cmd.Usage), roff(usageLine(cmd)))
}

// describeCommand writes the options of a command and an example.
func describeCommand(w *strings.Builder, cmd *cli.Command) {
	writeFlags(w, cmd)
	_, path, _ := strings.Cut(cmd.HelpName, " ")
	if example := commandExamples[path]; example != "" {
		fmt.Fprintf(w, ".P\nExample:\n.P\n.nf\n.RS\n%s\n.RE\n.fi\n", roff(example))
	}
}

func writeFlags(w *strings.Builder, cmd *cli.Command) {
	titles, groups := groupedFlags(cmd)
	for i, title := range titles {
		if len(groups[i]) == 0 {
			continue
		}
		fmt.Fprintf(w, ".SS %s\n", roff(title))
		for _, f := range groups[i] {
			name, text := flagText(f)
			fmt.Fprintf(w, ".TP\n.B %s\n%s\n", roff(name), roff(text))
		}
	}
}

// roff escapes a text for man(7).
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n", " ").Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return strings.ReplaceAll(strings.ReplaceAll(text, "…", `\[u2026]`), "→", `\[->]`)
}
