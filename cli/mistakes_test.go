package cli

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/config"
)

// TestMistakesSayWhatToDo: whoever makes one of these mistakes is told what is wrong and what to do
// instead, with the exit code of wrong use, and nothing is written on standard output.
func TestMistakesSayWhatToDo(t *testing.T) {
	t.Setenv("MAILSTEAD_MIGRATE", "")
	t.Chdir(t.TempDir())
	dir := t.TempDir()
	if _, err := mailsteadCommand(t, "init", "--data", dir, "--owner-email", "ops@example.com"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("MAILSTEAD_DATA", dir)
	for line, want := range map[string]string{
		// Commands.
		"bogus":                 "there is no command \"bogus\"; run `mailstead help`",
		"help bogus":            "there is no command \"bogus\"; run `mailstead help`",
		"stauts":                "there is no command \"stauts\": did you mean `mailstead status`? Run `mailstead help` for all commands",
		"start":                 "there is no command \"start\": did you mean `mailstead serve`? Run `mailstead help` for all commands",
		"logs":                  "there is no command \"logs\": did you mean `mailstead log`? Run `mailstead help` for all commands",
		"mailboxes list":        "there is no command \"mailboxes\": did you mean `mailstead mailbox`? Run `mailstead help` for all commands",
		"mailbox add":           "there is no command \"add\": did you mean `mailstead mailbox create`? Run `mailstead mailbox help` for all commands",
		"domain create":         "there is no command \"create\": did you mean `mailstead domain add`? Run `mailstead domain help` for all commands",
		"account bogus":         "there is no command \"bogus\"; run `mailstead account help`",
		"account create help x": "there is no command \"x\"; run `mailstead account create help`",
		"backup lst":            "there is no command \"lst\": did you mean `mailstead backup list`? A file or directory of that name is ./lst",
		// Options.
		"--bogus":                               "there is no option --bogus; run `mailstead --help`",
		"account --bogus":                       "there is no option --bogus; run `mailstead account --help`",
		"serve --hostnam a":                     "there is no option --hostnam: did you mean --hostname? Run `mailstead serve --help` for all options",
		"backup list --full":                    "there is no option --full; run `mailstead backup list --help`",
		"call --data":                           "--data needs a value; run `mailstead call --help`",
		"call list_domains --data":              "--data needs a value; run `mailstead call --help`",
		"call list_domains -bogus":              "there is no option --bogus; run `mailstead call --help`",
		"doctor --json=perhaps":                 `--json is "perhaps"; write --json, or --json=false`,
		"log --limit many":                      `--limit is "many", which is not a whole number`,
		"log --limit 0":                         "--limit must be at least 1",
		"call x --wait --timeout 10":            `--timeout is "10", which is not a time span; write, for example, 90s, 10m or 2h`,
		"log --since yesterday":                 "--since is \"yesterday\"; write a time span such as 30m, 1h or 7d, a day such as 2026-11-24, or a time such as 2026-11-24T12:00:00Z",
		"restore /x --at noon":                  `--at is "noon", which is not a time; write, for example, 2026-11-24T12:00:00Z`,
		"check-host":                            "--hostname is required: the public name that this host is to have, such as mail.example.com",
		"domain claim example.com":              "--account is required",
		"token create":                          "--user is required: the team user's address",
		"log -x":                                "there is no option -x; run `mailstead log --help`",
		"--json domain list":                    "--json belongs after the command: mailstead COMMAND --json",
		"mailbox --csv list":                    "--csv belongs after the command: mailstead mailbox COMMAND --csv",
		"status --server x":                     "there is no option --server: commands work on the data directory of this host, which --data names. For another server, run the command there over ssh, or use the API with a token",
		"login":                                 "there is no command \"login\": commands work on the data directory of this host, which --data names. For another server, run the command there over ssh, or use the API with a token",
		"log --csv --json":                      "give --json or --csv, not both",
		"log --follow --csv":                    "give --follow or --csv, not both",
		"call get_me --csv":                     "--csv goes with --list: operations answer JSON",
		"domain add a.test --timeout 5s":        "--timeout goes with --wait",
		"domain add a.test --manual --external": "give --manual or --external, not both",
		"queue retry msg_x --all":               "give the ids of messages or --all, not both",
		"export mbox out --all --from a@b.c":    "give --from or --all, not both",
		"job resume":                            "name the job by its id, which `mailstead job parked` shows, or give --all",
		"job resume job_x --all":                "name a job or give --all, not both",
		"account suspend":                       "name the account: mailstead account suspend ACCOUNT [options]",
		"account suspend a@b.c --account d":     "give a@b.c or --account d, not both",
		"account create":                        "--owner-email is required: the owner's address",
		"user reset-password":                   "name the user: mailstead user reset-password USER [options]",
		"account delete a@b.c":                  "This deletes the account a@b.c with all its domains, mailboxes and mail, and cannot be undone. Add --yes to do it",
		"mailbox list example.com":              "\"example.com\" is not expected: did you mean --domain example.com?",
		"log a@b.c":                             "\"a@b.c\" is not expected: did you mean --mailbox a@b.c?",
		"manual":                                "name the directory: mailstead manual DIR [options]",
		"export mbox":                           "name the directory: mailstead export mbox DIR --all",
		"send":                                  "there is no command \"send\"; the API has send_email, send_draft, send_email_batch: see `mailstead call --list send`",
		"token list":                            "there is no command \"list\"; the API has it: `mailstead call list_tokens`",
		"domain check":                          "there is no command \"check\": did you mean `mailstead domain show`? Run `mailstead domain help` for all commands",
		"import imap --to a@b.c":                "--host is required, or --list",
		"serve --outbound pigeon":               `invalid --outbound: "pigeon" is not allowed; use one of capture, direct, relay`,
		"serve --smtp 25":                       `invalid --smtp: "25" is not an address; write HOST:PORT, :PORT, or off`,
		"check-host --hostname local":           `invalid --hostname: "local" is not a public hostname; use, for example, mail.example.com`,
		// Arguments.
		"account list more":              "\"more\" is not expected; run `mailstead account list --help`",
		"completion":                     "name the shell: mailstead completion bash|zsh|fish",
		"completion tcsh":                `there is no completion for "tcsh"; use bash, zsh, fish`,
		"domain show":                    "name the domain: mailstead domain show DOMAIN [options]",
		"domain show a b":                "\"b\" is not expected: mailstead domain show DOMAIN [options]",
		"domain add":                     "name the domains: mailstead domain add DOMAIN… [options]",
		"mailbox create ann":             `"ann" is not an address; write NAME@DOMAIN`,
		"mailbox delete":                 "name the address: mailstead mailbox delete ADDRESS [options]",
		"queue retry":                    "name the messages by their ids, which `mailstead queue list` shows, or give --all: mailstead queue retry [ID…] [options]",
		"queue cancel --all":             "This cancels all messages that wait, which then are not sent. Add --yes to do it",
		"backup":                         "name the place of the backup: mailstead backup PLACE; PLACE is a file, a directory (which exists, or a name that ends in /), or s3://BUCKET/PREFIX",
		"backup a/ --to b/":              "give a/ or --to b/, not both",
		"restore":                        "name the place of the backup: mailstead restore PLACE --data DIR",
		"import mbox":                    "name what to import and --to, the address of the mailbox, as in `mailstead import mbox FILE --to ADDRESS`; or give --list",
		"export maildir":                 "name the directory: mailstead export maildir DIR --all",
		"export maildir out":             "say which mailboxes: --from ADDRESS, or --all",
		"account delete --account a@b.c": "This deletes the account a@b.c with all its domains, mailboxes and mail, and cannot be undone. Add --yes to do it",
		// Operations.
		"call":                                     "name the operation: mailstead call OPERATION [key=value …]; `mailstead call --list` lists the operations",
		"call list_domain":                         "there is no operation \"list_domain\": did you mean list_domains? `mailstead call --list` lists all operations",
		"call frobnicate":                          "there is no operation \"frobnicate\"; `mailstead call --list` lists them",
		"call frobnicate --help":                   "there is no operation \"frobnicate\"; `mailstead call --list` lists them",
		"call get_domain":                          "get_domain needs domain_id: give domain_id=…; `mailstead call get_domain --help` shows all fields",
		"call list_domains {} more":                "\"more\" is not expected: mailstead call OPERATION [JSON]; the JSON is one argument, best in single quotes",
		"call list_domains limit":                  `"limit" is not an argument of list_domains; write key=value, key:=JSON, key@FILE, or one JSON object in single quotes`,
		"call list_domains {limit}":                "the arguments of list_domains are not one JSON object: invalid character 'l' looking for beginning of object key string",
		"call list_domains limt=5":                 "list_domains has no field \"limt\": did you mean limit? `mailstead call list_domains --help` shows all fields",
		"call list_domains limit=some":             "limit is \"some\", which is not a whole number; `mailstead call list_domains --help` shows the types of all fields",
		"call list_domains limit=1 limit=2":        "limit is given more than once, but is not a list",
		"call get_account x=1":                     "get_account has no fields, so \"x\" cannot be given",
		"call create_email_user name:=Ann":         "name:=Ann is not JSON; for a text write name=Ann",
		"call create_email_user imap=x":            "imap is an object: write its JSON after :=; `mailstead call create_email_user --help` shows the types of all fields",
		`call create_email_user {"emial":"a@b.c"}`: "create_email_user has no field \"emial\": did you mean email? `mailstead call create_email_user --help` shows all fields",
	} {
		var stdout, stderr bytes.Buffer
		err := runCommand(t.Context(), testProgram().app(&stdout, &stderr), append([]string{"mailstead"}, strings.Fields(line)...))
		if err == nil || !errors.As(err, new(config.Error)) || err.Error() != want || stdout.Len() > 0 {
			t.Errorf("%s: %v, %s\nwant %s", line, err, &stdout, want)
			continue
		}
		if code := exitCode(err, &stderr); code != 2 || stderr.String() != "mailstead: "+want+"\n" {
			t.Errorf("%s: code %d, %s", line, code, &stderr)
		}
	}
}

// TestFailuresSayWhatToDo: what cannot be done ends with the code 1 and says what to do instead.
func TestFailuresSayWhatToDo(t *testing.T) {
	dir := t.TempDir()
	if _, err := mailsteadCommand(t, "init", "--data", dir, "--owner-email", "ops@example.com"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("MAILSTEAD_DATA", dir)
	if _, err := mailsteadCommand(t, "domain", "add", "boxes.test", "--external"); err != nil {
		t.Fatal(err)
	}
	if _, err := mailsteadCommand(t, "mailbox", "create", "ann@boxes.test"); err == nil {
		t.Log("an external domain can have mailboxes")
	}
	for line, want := range map[string]string{
		"domain show box.test":                                 "there is no domain box.test: did you mean boxes.test?",
		"domain show far.example":                              "there is no domain far.example; `mailstead domain list` lists them, `mailstead domain add far.example` connects it",
		"mailbox password bob@boxes.test":                      "there is no mailbox bob@boxes.test; `mailstead mailbox list` lists them",
		"log --mailbox bob@boxes.test":                         "there is no mailbox bob@boxes.test; `mailstead mailbox list` lists them",
		"domain add boxes":                                     "boxes: \"boxes\" has no dot: give the whole name, such as boxes.com (invalid_domain)",
		"token create --user x@example.com":                    "There is no team user x@example.com. Check the address.",
		"init --owner-email ops@example.com":                   "This data directory has an account already. Use `mailstead account create` for another one.",
		"log --follow":                                         "no server runs on " + dir + ": start it first",
		"status":                                               "no server runs on " + dir + ". Start it: `systemctl start mailstead`, or `mailstead serve --data " + dir + "`",
		"call connect_domains --wait domains=a.test":           "no server runs on " + dir + ": start it first",
		"call get_domain domain_id=dom_x":                      "(not_found)",
		"call create_email_user name=Ann":                      "(validation_error)",
		"profile heap --to " + filepath.Join(t.TempDir(), "x"): "no server runs on " + dir + ": start it first",
	} {
		var stderr bytes.Buffer
		_, err := mailsteadCommand(t, strings.Fields(line)...)
		if code := exitCode(err, &stderr); code != 1 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: code %d, %s\nwant %s", line, code, &stderr, want)
		}
	}
	body, err := mailsteadCommand(t, "call", "get_domain", "domain_id=dom_x", "--json")
	if err == nil || !strings.Contains(body, `"code": "not_found"`) || !strings.HasPrefix(err.Error(), "There is no ") && !strings.Contains(err.Error(), "(not_found)") {
		t.Errorf("--json of an error: %s, %v", body, err)
	}
	missing := filepath.Join(t.TempDir(), "none")
	if _, err := mailsteadCommand(t, "status", "--data", missing); err == nil || !isWrongUse(err) || !strings.Contains(err.Error(), "there is no store in "+missing+": run `mailstead init") {
		t.Errorf("status of nothing: %v", err)
	}
	if _, err := os.Stat(missing); err == nil {
		t.Error("status has made the directory")
	}
}

// TestErrorsOfTheAPIAreSentences: the message once, the fields with their own names, and details
// that say something else.
func TestErrorsOfTheAPIAreSentences(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"code":"invalid_setting","message":"http cannot be changed here: set it in mailstead.toml.","details":[{"field":"http","message":"cannot be changed here"}]}}`:         "http cannot be changed here: set it in mailstead.toml. (invalid_setting)",
		`{"error":{"code":"invalid_setting","message":"limits.x: must be a whole number.","details":[{"field":"limits.x","message":"must be a whole number"}]}}`:                          "limits.x: must be a whole number. (invalid_setting)",
		`{"error":{"code":"validation_error","message":"name: is required (and 1 more, see details)","details":[{"field":"name","message":"is required"},{"field":"to","message":"x"}]}}`: "name: is required (and 1 more, see details) (validation_error)\n  name: is required\n  to: x",
		`{"error":{"code":"not_found","message":"there is no such domain"}}`:                                                                                                              "There is no such domain. (not_found)",
	} {
		if got := newAPIError(400, []byte(body)).Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestTakenPortNamesItsProgram: a server that cannot listen says who has the port, and what to do.
func TestTakenPortNamesItsProgram(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, err = net.Listen("tcp", ln.Addr().String())
	var stderr bytes.Buffer
	code := exitCode(fmt.Errorf("listen for --smtp: %w", err), &stderr)
	if code != 1 || !strings.Contains(stderr.String(), "address already in use. ") || !strings.Contains(stderr.String(), "Stop that program, or set --smtp to another port, or to off.") {
		t.Errorf("%d %s", code, &stderr)
	}
}
