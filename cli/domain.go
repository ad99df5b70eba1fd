package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/internal/nearest"
	"github.com/mailstead/mailstead/service/domains"
)

func (p *Program) domainCommands() []*cli.Command {
	return []*cli.Command{
		p.command("add", "connect domains, and say what to set in their DNS", "DOMAIN…", func(c *cli.Context, e *env) error {
			if !c.Args().Present() {
				return config.Mistake(fmt.Errorf("name the domains: %s", usageLine(c.Command)))
			}
			chosen := slices.DeleteFunc([]string{"manual", "external", "credential"}, func(flag string) bool { return !c.IsSet(flag) })
			if len(chosen) > 1 {
				return config.Mistake(fmt.Errorf("give --%s or --%s, not both", chosen[0], chosen[1]))
			}
			return runDomainAdd(c.Context, e, domainAddOptions{
				names: c.Args().Slice(), account: c.String("account"), manual: c.Bool("manual"), external: c.Bool("external"),
				credential: c.String("credential"), wait: c.Bool("wait"), timeout: c.Duration("timeout"),
			})
		},
			&cli.BoolFlag{Name: "manual", Usage: "you enter the records at your DNS provider yourself"},
			&cli.StringFlag{Name: "credential", Usage: "the DNS credential, by id, with which the records are made at your DNS provider"},
			&cli.BoolFlag{Name: "external", Usage: "its mail stays on another server"},
			&cli.BoolFlag{Name: "wait", Usage: "wait until the domains are complete; exit with 1 if that fails"},
			timeoutFlag(), accountFlag(), jsonFlag()),
		p.command("list", "list the domains", "", func(c *cli.Context, e *env) error {
			if err := noArguments(c); err != nil {
				return err
			}
			return runDomainList(c.Context, e, c.String("account"), c.String("status"))
		}, append(listFlags(), &cli.StringFlag{Name: "status", Usage: "only those with this status, such as complete or error"}, accountFlag())...),
		p.command("show", "show a domain and its DNS records", "DOMAIN", func(c *cli.Context, e *env) error {
			name, err := requireArgument(c, "DOMAIN")
			if err != nil {
				return err
			}
			return runDomainShow(c.Context, e, c.String("account"), name)
		}, append(listFlags(), accountFlag())...),
		p.command("delete", "delete a domain with its mailboxes and all their mail", "DOMAIN", func(c *cli.Context, e *env) error {
			name, err := requireArgument(c, "DOMAIN")
			if err != nil {
				return err
			}
			return runDomainDelete(c.Context, e, c.String("account"), name, c.Bool("yes"))
		}, &cli.BoolFlag{Name: "yes", Usage: "do not ask"}, accountFlag(), jsonFlag()),
		p.claimCommand(),
	}
}

// runDomainDelete deletes a domain. It asks first, and deletes nothing without an answer.
func runDomainDelete(ctx context.Context, e *env, account, name string, yes bool) error {
	return e.withAPI(ctx, account, func(a *apiCaller) error {
		d, err := a.findDomain(name)
		if err != nil {
			return err
		}
		mailboxes, _ := d["email_users_count"].(float64)
		if !yes {
			what := fmt.Sprintf("This deletes the domain %s with %s and all their mail, and cannot be undone.", d.stringField("domain"), plural(int64(mailboxes), "mailbox"))
			if err := e.confirm(what, os.Stdin); err != nil {
				return err
			}
		}
		job, err := a.get("delete_domain", jsonObject{"domain_id": d["domain_id"]})
		if err != nil {
			return err
		}
		return e.print(job, fmt.Sprintf("%s is being deleted (job %s).\n", d.stringField("domain"), job.stringField("job_id")))
	})
}

// domainError returns the error of a domain that could not be connected. d is its entry in the
// answer of connect_domains or check_nameservers.
func domainError(d jsonObject) error {
	text := d.stringField("error") + d.stringField("message")
	if code, message, ok := strings.Cut(text, ": "); ok && !strings.Contains(code, " ") {
		text = message + " (" + code + ")"
	}
	return fmt.Errorf("%s: %s", d.stringField("domain"), text)
}

func (p *Program) claimCommand() *cli.Command {
	return p.command("claim", "assign a disputed domain to an account", "DOMAIN", func(c *cli.Context, e *env) error {
		domain, err := requireArgument(c, "DOMAIN")
		if err != nil {
			return err
		}
		if c.String("account") == "" {
			return config.Mistake(errors.New("--account is required"))
		}
		return runClaim(c.Context, e, domains.ClaimDecision{Account: c.String("account"), Domain: domain})
	},
		&cli.StringFlag{Name: "account", Usage: "the account that gets the domain, by id or owner's address"},
		jsonFlag())
}

// runClaim assigns a domain that several accounts claim to one of them.
func runClaim(ctx context.Context, e *env, in domains.ClaimDecision) error {
	out := new(domains.ClaimDecided)
	if err := e.ask(ctx, operator.ClaimPath, in, out); err != nil {
		return err
	}
	return e.print(out, fmt.Sprintf("domain   %s (%s)\naccount  %s\nstatus   %s\n", out.Domain, out.DomainID, out.AccountID, out.Status))
}

// withAPI calls do with a caller of the API as the owner of an account.
func (e *env) withAPI(ctx context.Context, account string, do func(*apiCaller) error) error {
	return e.withServer(ctx, func(send sender) error {
		return e.printAPIError(do(&apiCaller{ctx: ctx, account: account, send: send}))
	})
}

// runDomainList prints the domains of an account.
func runDomainList(ctx context.Context, e *env, account, status string) error {
	return e.withAPI(ctx, account, func(a *apiCaller) error {
		args := jsonObject{"limit": "100"}
		if status != "" {
			args["status"] = status
		}
		list, err := a.list("list_domains", args)
		if err != nil {
			return err
		}
		t := &table{heads: []string{"Domain", "Status", "DNS", "Provider", "Mailboxes", "Detail"}, wide: []int{5, 0}, empty: "No domains. `mailstead domain add NAME` connects one."}
		for _, d := range list {
			health, _ := d["dns_health"].(map[string]any)
			t.add(d.stringField("domain"), d.stringField("status"), jsonObject(health).stringField("status"), d.stringField("dns_provider"),
				fmt.Sprint(d["email_users_count"]), strings.TrimPrefix(reasonOf(d), ": "))
		}
		return e.printTable(listOf(list), t)
	})
}

// listOf returns the object that commands print for a list with --json.
func listOf(list []jsonObject) jsonObject { return jsonObject{"data": list, "count": len(list)} }

// findDomain returns the account's domain with a name or an id.
func (a *apiCaller) findDomain(name string) (jsonObject, error) {
	if strings.HasPrefix(name, "dom_") {
		return a.get("get_domain", jsonObject{"domain_id": name})
	}
	wanted := strings.TrimSuffix(strings.ToLower(name), ".")
	list, err := a.list("list_domains", jsonObject{"q": wanted})
	if err != nil {
		return nil, err
	}
	for _, d := range list {
		if d.stringField("domain") == wanted || d.stringField("domain_unicode") == wanted {
			return d, nil
		}
	}
	list, _, err = a.page("list_domains", jsonObject{"limit": "100"})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, d := range list {
		names = append(names, d.stringField("domain"))
	}
	if near := nearest.Name(wanted, names); near != "" {
		return nil, fmt.Errorf("there is no domain %s: did you mean %s?", name, near)
	}
	return nil, fmt.Errorf("there is no domain %s; `mailstead domain list` lists them, `mailstead domain add %[1]s` connects it", name)
}

// runDomainShow prints a domain with the records that it should have and those that the DNS has.
func runDomainShow(ctx context.Context, e *env, account, name string) error {
	return e.withAPI(ctx, account, func(a *apiCaller) error {
		d, err := a.findDomain(name)
		if err != nil {
			return err
		}
		status, err := a.get("get_dns_status", jsonObject{"domain_id": d["domain_id"]})
		if err != nil {
			return err
		}
		t := &table{heads: []string{"Record", "Host", "Purpose", "Status", "Found", "Expected"}, wide: []int{5, 4}}
		records, _ := status["records"].([]any)
		for _, one := range records {
			object, _ := one.(map[string]any)
			r := jsonObject(object)
			state, found := "verified", r.stringField("actual")
			switch {
			case r["verified"] != true:
				state = cmp.Or(r.stringField("error"), "unverified")
			case !e.csv:
				found = "" // it is what was expected
			}
			t.add(r.stringField("type"), r.stringField("host"), r.stringField("purpose"), state, found, r.stringField("expected"))
		}
		if e.json || e.csv {
			return e.printTable(d.withField("dns", status), t)
		}
		p := newPrinter(e.stdout)
		line := func(name, text string) {
			if text != "" {
				fmt.Fprintf(e.stdout, "%-13s %s\n", name, plainText(text))
			}
		}
		line("Domain", d.stringField("domain")+" ("+d.stringField("domain_id")+")")
		fmt.Fprintf(e.stdout, "%-13s %s%s\n", "Status", p.styled(statusColours[d.stringField("status")], d.stringField("status")), plainText(reasonOf(d)))
		line("DNS provider", d.stringField("dns_provider"))
		line("Nameservers", strings.Join(textsOf(d["nameservers"]), ", "))
		line("Mailboxes", fmt.Sprint(d["email_users_count"]))
		line("Added", timeText(d["created_at"]))
		line("Next look", timeText(d["next_look_at"]))
		line("Checked", timeText(status["checked_at"]))
		if len(t.rows) == 0 {
			return nil
		}
		fmt.Fprintln(e.stdout)
		return p.writeTable(t)
	})
}

type domainAddOptions struct {
	names            []string
	account          string
	manual, external bool
	credential       string
	wait             bool
	timeout          time.Duration
}

// runDomainAdd connects domains and prints what their owner has to do. With wait, it waits until
// they are complete.
func runDomainAdd(ctx context.Context, e *env, o domainAddOptions) error {
	args := jsonObject{"domains": o.names, "manual_dns": o.manual, "external": o.external}
	if o.credential != "" {
		args["dns_credential_id"] = o.credential
	}
	w, end := e.newWaiter(ctx, o.account, o.timeout)
	defer end()
	if !o.wait {
		w.send = e.send // without a server, the domains are set up once one runs
	}
	answer, err := w.get("connect_domains", args)
	if err != nil {
		return e.printAPIError(err)
	}
	list, _ := answer["domains"].([]any)
	var failed error
	for _, one := range list {
		object, _ := one.(map[string]any)
		d := jsonObject(object)
		if d.stringField("status") == "error" {
			failed = errors.Join(failed, domainError(d))
		} else if !e.json {
			if err := e.printNextSteps(w, d, o); err != nil {
				return errors.Join(err, failed)
			}
		}
	}
	var result any = answer
	if o.wait {
		result, failed = w.waitForDomains(answer) // the error names those that could not be connected too
		w.line.end()
	}
	switch {
	case e.json:
		return errors.Join(e.print(result, ""), failed)
	case o.wait && failed == nil:
		return e.print(result, "Complete.\n")
	}
	return failed
}

// printNextSteps prints what the owner of a connected domain has to do. d is its entry in the
// answer of connect_domains.
func (e *env) printNextSteps(w *waiter, d jsonObject, o domainAddOptions) error {
	name, nameservers := d.stringField("domain"), textsOf(d["nameservers"])
	switch {
	case d.stringField("status") == "already_exists":
		_, err := fmt.Fprintf(e.stdout, "%s is connected already; `mailstead domain show %[1]s` shows its state.\n", name)
		return err
	case o.external:
		_, err := fmt.Fprintf(e.stdout, "%s is connected. Its mail stays where it is.\n", name)
		return err
	case o.manual:
		fmt.Fprintf(e.stdout, "%s is connected. Enter these records at its DNS provider:\n\n", name)
		if err := e.printRecordsToEnter(w, d.stringField("domain_id")); err != nil {
			return err
		}
		fmt.Fprintln(e.stdout)
	case len(nameservers) > 0:
		fmt.Fprintf(e.stdout, "%s is connected. Set these nameservers at its registrar:\n\n  %s\n\n", name, strings.Join(nameservers, "\n  "))
	default:
		fmt.Fprintf(e.stdout, "%s is connected. Its records are made at its DNS provider.\n", name)
	}
	if o.wait {
		return nil
	}
	_, err := fmt.Fprintf(e.stdout, "Mailstead looks for the change by itself; `mailstead domain show %s` shows how far it is.\n", name)
	return err
}

// recordsWithin is how long domain add waits for the records of a manual domain to be computed.
const recordsWithin = 10 * time.Second

// printRecordsToEnter prints the records that the owner of a manual domain must enter.
func (e *env) printRecordsToEnter(w *waiter, id string) error {
	patience := recordsWithin
	if !e.serverRuns() {
		patience = 0 // nothing computes them
	}
	for waited := time.Duration(0); ; waited += pollInterval {
		answer, err := w.get("get_dns_records", jsonObject{"domain_id": id})
		if err != nil {
			return err
		}
		list, _ := answer["records"].([]any)
		if list != nil {
			t := &table{heads: []string{"Type", "Host", "TTL", "Priority", "Value"}}
			for _, one := range list {
				object, _ := one.(map[string]any)
				r := jsonObject(object)
				priority := ""
				if r["priority"] != nil {
					priority = fmt.Sprint(r["priority"])
				}
				t.add(r.stringField("type"), r.stringField("host"), fmt.Sprint(r["ttl"]), priority, r.stringField("value"))
			}
			return newPrinter(e.stdout).writeTable(t)
		}
		if waited >= patience {
			_, err := fmt.Fprintf(e.stdout, "They are being computed: `mailstead call get_dns_records domain_id=%s` lists them.\n", id)
			return err
		}
		if err := w.pause(pollInterval); err != nil {
			return err
		}
	}
}
