package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/store"
)

func (p *Program) importSettingsCommand() *cli.Command {
	return p.command("settings", "make domains, mailboxes and the rest of an account as an export has them", "[FILE]", func(c *cli.Context, e *env) error {
		if err := argumentAsFlag(c, "from"); err != nil {
			return err
		}
		if c.String("from") == "" {
			return config.Mistake(errors.New("name the account.json of an export: mailstead import settings FILE"))
		}
		return runImportSettings(c.Context, e, importSettingsOptions{from: c.String("from"), account: c.String("account")})
	},
		&cli.StringFlag{Name: "from", Usage: "the account.json that an export has written"},
		&cli.StringFlag{Name: "account", Usage: "the account that takes them, by id or owner's address, if there are several"}, jsonFlag())
}

type importSettingsOptions struct {
	from    string // path of an account.json
	account string // account ID or owner's address; "" means the only account
}

// settingsImported is the result of importing the settings of an account.
type settingsImported struct {
	Done   int             `json:"done"` // number of objects that were created or changed
	Failed int             `json:"failed"`
	Errors []settingsError `json:"errors"`
}

// A settingsError says why one object of account.json could not be imported.
type settingsError struct {
	What    string `json:"what"`
	Message string `json:"message"`
}

// A settingsImporter creates the objects of an account.json in an account. It changes existing
// objects to the values in the file, or leaves them, so an import can be repeated.
type settingsImporter struct {
	apiCaller
	a   accountExport
	out settingsImported
}

func runImportSettings(ctx context.Context, e *env, o importSettingsOptions) error {
	if isDir(o.from) {
		return config.Mistake(fmt.Errorf("%s is a directory: give --from the account.json in it that `mailstead export` made", o.from))
	}
	text, err := os.ReadFile(o.from)
	if err != nil {
		return config.Mistake(err)
	}
	im := &settingsImporter{apiCaller: apiCaller{ctx: ctx, account: o.account}, out: settingsImported{Errors: []settingsError{}}}
	if err := json.Unmarshal(text, &im.a); err != nil || len(im.a.Settings) == 0 {
		return config.Mistake(fmt.Errorf("%s has no settings: give --from the account.json that `mailstead export` made", o.from))
	}
	err = e.withServer(ctx, func(send sender) error {
		im.send = send
		return im.run()
	})
	if err != nil {
		return err
	}
	summary := fmt.Sprintf("done    %d\nfailed  %d\n", im.out.Done, im.out.Failed)
	for _, wrong := range im.out.Errors {
		summary += fmt.Sprintf("%s: %s\n", wrong.What, wrong.Message)
	}
	if err := e.print(im.out, summary); err != nil {
		return err
	}
	if im.out.Failed > 0 {
		return errors.New("some objects were not imported: fix the causes that are listed above, and run the command again")
	}
	return nil
}

// run creates all objects, each after those that it depends on. It records objects that the server
// refuses in im.out and continues. It returns an error only if the import cannot continue.
func (im *settingsImporter) run() error {
	var settings jsonObject
	if err := json.Unmarshal(im.a.Settings, &settings); err != nil {
		return err
	}
	im.tryCall("the account", "update_account", settings.pickFields("name warmup_phrases warmup_headers warmup_folder warmup_days"))
	domains, err := im.connectDomains()
	if err != nil {
		return err
	}
	if err := im.createMailboxes(); err != nil {
		return err
	}
	boxes, err := im.listByField("list_email_users", "email")
	if err != nil {
		return err
	}
	for _, m := range im.a.Mailboxes {
		if own := boxes[m.stringField("email")]; own != nil {
			set := m.pickFields("name footer daily_send_limit forward_to forward_keep_copy aliases signature relay quota_bytes send_policy expires_at")
			if m.stringField("status") == store.MailboxSuspended {
				set["status"] = store.MailboxSuspended
			}
			im.tryCall(m.stringField("email"), "update_email_user", set.withField("user_id", own["user_id"]))
		}
	}
	for _, d := range im.a.Domains {
		if own := domains[d.stringField("domain")]; own != nil {
			if err := im.updateDomain(d, own); err != nil {
				return err
			}
		}
	}
	if err := im.createGroups(); err != nil {
		return err
	}
	for email, rules := range im.a.Rules {
		own := boxes[email]
		if own == nil {
			continue
		}
		there, err := im.list("list_rules", jsonObject{"user_id": own["user_id"]})
		if err != nil {
			return err
		}
		// Rules are created in the order of the file. So if the mailbox has n rules, they are the
		// first n of the file.
		for _, r := range rules[min(len(there), len(rules)):] {
			im.tryCall("a rule of "+email, "create_rule", r.pickFields("name enabled match conditions actions").withField("user_id", own["user_id"]))
		}
		if v := im.a.Vacations[email]; v != nil {
			im.tryCall("the vacation of "+email, "set_vacation", v.pickFields("enabled subject text from starts_at ends_at").withField("user_id", own["user_id"]))
		}
	}
	if err := im.createMissing("template", "list_templates", "create_template", "name", im.a.Templates, "name usernames"); err != nil {
		return err
	}
	if err := im.createMissing("message template", "list_message_templates", "create_message_template", "name", im.a.MessageTemplates, "name subject text html"); err != nil {
		return err
	}
	if err := im.createWebhooks(domains, boxes); err != nil {
		return err
	}
	if on, _ := settings["universal_inbox_enabled"].(bool); on {
		im.tryCall("the universal inbox", "set_universal_inbox", jsonObject{"enabled": true})
	}
	reasons := map[string][]any{}
	for _, s := range im.a.Suppressions {
		reasons[s.stringField("reason")] = append(reasons[s.stringField("reason")], s["email"])
	}
	for reason, emails := range reasons {
		for some := range slices.Chunk(emails, 10_000) {
			im.tryCall("suppressions", "import_suppressions", jsonObject{"emails": some, "reason": reason})
		}
	}
	return nil
}

// tryCall calls an operation of the API for the object what. It records the success or the error,
// and reports whether the operation succeeded.
func (im *settingsImporter) tryCall(what, operation string, args jsonObject) (succeeded bool) {
	_, err := im.call(operation, args)
	if err != nil {
		im.recordFailure(what, err.Error())
		return false
	}
	im.out.Done++
	return true
}

// recordFailure records that the object what was not imported, and why.
func (im *settingsImporter) recordFailure(what, message string) {
	im.out.Failed++
	im.out.Errors = append(im.out.Errors, settingsError{what, message})
}

// listByField lists the existing objects with a list operation, and returns them by the value of a
// field.
func (im *settingsImporter) listByField(operation, field string) (map[string]jsonObject, error) {
	list, err := im.list(operation, nil)
	out := map[string]jsonObject{}
	for _, o := range list {
		out[o.stringField(field)] = o
	}
	return out, err
}

// createMissing creates the objects in all that do not exist yet. nameField is the field that
// identifies an object, and copiedFields are the fields to copy, separated by spaces.
func (im *settingsImporter) createMissing(what, listOperation, createOperation, nameField string, all []jsonObject, copiedFields string) error {
	there, err := im.listByField(listOperation, nameField)
	if err != nil {
		return err
	}
	for _, o := range slices.Backward(all) { // the file has the newest object first
		if there[o.stringField(nameField)] == nil {
			im.tryCall(what+" "+o.stringField(nameField), createOperation, o.pickFields(copiedFields))
		}
	}
	return nil
}

// connectDomains connects the domains that the account does not have yet, and returns all domains
// of the account by name.
func (im *settingsImporter) connectDomains() (map[string]jsonObject, error) {
	there, err := im.listByField("list_domains", "domain")
	if err != nil {
		return nil, err
	}
	for _, d := range slices.Backward(im.a.Domains) {
		name := d.stringField("domain")
		if there[name] != nil {
			continue
		}
		how := jsonObject{"domains": []string{name}}
		for _, field := range []string{"apex", "mx"} {
			place, _ := d[field].(map[string]any)
			if mode := jsonObject(place).stringField("mode"); mode != "" && mode != store.ApexUndecided {
				how[field] = mode
			}
		}
		switch d.stringField("dns_provider") {
		case store.DomainProviderManual:
			how["manual_dns"] = true
		case store.DomainProviderExternal:
			how["external"] = true
		case store.DomainProviderCloudflare, store.DomainProviderRFC2136, store.DomainProviderRoute53, store.DomainProviderHetzner, store.DomainProviderDeSEC:
			im.recordFailure(name, "its DNS is changed with a token or credential, which no export has: connect it with `mailstead call connect_domains`, and run this again.")
			continue
		}
		text, err := im.call("connect_domains", how)
		var answer struct{ Domains []jsonObject }
		if err == nil {
			err = json.Unmarshal(text, &answer)
		}
		switch {
		case err != nil:
			im.recordFailure(name, err.Error())
		case len(answer.Domains) == 1 && answer.Domains[0].stringField("error") != "":
			im.recordFailure(name, answer.Domains[0].stringField("error"))
		default:
			im.out.Done++
			if how["manual_dns"] == nil && how["external"] == nil {
				im.tryCall(name, "check_nameservers", jsonObject{"domains": []string{name}})
			}
		}
	}
	return im.listByField("list_domains", "domain")
}

// updateDomain changes the domain existing to the values of fromFile, and adds the missing DNS
// records.
func (im *settingsImporter) updateDomain(fromFile, existing jsonObject) error {
	name, id := fromFile.stringField("domain"), existing["domain_id"]
	set := jsonObject{}
	for field, value := range fromFile.pickFields("tags sending_mode relay list_unsubscribe catch_all notes tls_policy sends_elsewhere") {
		if !reflect.DeepEqual(value, existing[field]) {
			set[field] = value
		}
	}
	if apex, _ := fromFile["apex"].(map[string]any); apex != nil && apex["mode"] == store.ApexElsewhere && !reflect.DeepEqual(apex, existing["apex"]) {
		set["apex"] = jsonObject{"mode": apex["mode"], "addresses": apex["addresses"]}
		if apex["alias"] != nil {
			set["apex"] = jsonObject{"mode": apex["mode"], "alias": apex["alias"]}
		}
	}
	if len(set) > 0 {
		im.tryCall(name, "update_domain", set.withField("domain_id", id))
	}
	if o, _ := fromFile["dmarc_override"].(map[string]any); o != nil && existing["dmarc_override"] == nil {
		im.tryCall(name, "set_dmarc", jsonObject{"domain_id": id, "value": o["value"]})
	}
	if o, _ := fromFile["spf"].(map[string]any); o != nil && reflect.DeepEqual(existing["spf"], map[string]any{"extra": []any{}, "all": "~"}) && !reflect.DeepEqual(o, existing["spf"]) {
		im.tryCall(name, "set_spf", jsonObject{"domain_id": id, "extra": o["extra"], "all": o["all"]})
	}
	if r, _ := fromFile["redirect"].(map[string]any); r != nil && existing["redirect"] == nil {
		im.tryCall(name, "set_redirect", jsonObject{"domain_id": id, "redirect_url": r["url"], "permanent": r["permanent"], "preserve_path": r["preserve_path"]})
	}
	if f := fromFile.stringField("forward_address"); f != "" && existing["forward_address"] == nil {
		im.tryCall(name, "set_forward", jsonObject{"domain_id": id, "forward_address": f})
	}
	return errors.Join(im.addRecords(name, id), im.addSets(name, id))
}

// addRecords adds the missing records of a domain.
func (im *settingsImporter) addRecords(name string, id any) error {
	if len(im.a.Records[name]) == 0 {
		return nil
	}
	there, err := im.list("list_custom_dns_records", jsonObject{"domain_id": id})
	if err != nil {
		return err
	}
	for _, r := range im.a.Records[name] {
		same := func(o jsonObject) bool {
			return o["name"] == r["name"] && o["type"] == r["type"] && o["value"] == r["value"]
		}
		if !slices.ContainsFunc(there, same) {
			im.tryCall(name+" "+r.stringField("type")+" "+r.stringField("name"), "create_custom_dns_record", r.pickFields("name type value ttl").withField("domain_id", id))
		}
	}
	return nil
}

// addSets adds the missing record sets of a domain. It does not change those that are there.
func (im *settingsImporter) addSets(name string, id any) error {
	if len(im.a.Sets[name]) == 0 {
		return nil
	}
	there, err := im.list("get_zone", jsonObject{"domain_id": id})
	if err != nil {
		return err
	}
	for _, set := range im.a.Sets[name] {
		same := func(o jsonObject) bool {
			return o["name"] == set["name"] && o["type"] == set["type"] && o["source"] == "custom"
		}
		if !slices.ContainsFunc(there, same) {
			im.tryCall(name+" "+set.stringField("type")+" "+set.stringField("name"), "set_zone_records", set.pickFields("name type values ttl").withField("domain_id", id))
		}
	}
	return nil
}

// createMailboxes creates the missing mailboxes. A mailbox keeps its password if the file has the
// hash of it; else it gets a new password.
func (im *settingsImporter) createMailboxes() error {
	there, err := im.listByField("list_email_users", "email")
	if err != nil {
		return err
	}
	var lines []mailboxes.AccountLine
	for n, m := range im.a.Mailboxes {
		email := m.stringField("email")
		switch hash := m.stringField("password_hash"); {
		case there[email] != nil:
		case m.stringField("type") == store.MailboxTypeExternal:
			im.recordFailure(email, "its log-in to another server is in no export: make it with `mailstead call create_email_user`, and run this again.")
		case hash != "":
			lines = append(lines, mailboxes.AccountLine{Line: n + 1, Email: email, PasswordHash: hash, Name: m.stringField("name")})
		default:
			im.tryCall(email, "create_email_user", m.pickFields("email name"))
		}
	}
	for some := range slices.Chunk(lines, accountsPerRequest) {
		var made mailboxes.AccountsImported
		if err := sendCommand(im.ctx, im.send, operator.ImportAccountsPath, mailboxes.ImportAccountsIn{Lines: some}, &made); err != nil {
			return err
		}
		im.out.Done += made.Imported
		for _, e := range made.Errors {
			im.recordFailure(e.Email, e.Message)
		}
	}
	return nil
}

// createGroups creates the missing groups. Since a group may be a member of another group, it tries
// the remaining groups again as long as a pass has created one.
func (im *settingsImporter) createGroups() error {
	there, err := im.listByField("list_groups", "email")
	if err != nil {
		return err
	}
	waits := map[string]error{}
	for before := -1; before != len(waits); {
		before = len(waits)
		clear(waits)
		for _, g := range slices.Backward(im.a.Groups) {
			email := g.stringField("email")
			if there[email] != nil {
				continue
			}
			made := g.pickFields("email name send_as")
			var members []jsonObject
			list, _ := g["members"].([]any)
			for _, m := range list {
				if one, _ := m.(map[string]any); one != nil {
					members = append(members, jsonObject{"email": one["email"]})
				}
			}
			made["members"] = members
			if _, err := im.call("create_group", made); err != nil {
				waits[email] = err
				continue
			}
			there[email] = g
			im.out.Done++
		}
	}
	for email, err := range waits {
		im.recordFailure("group "+email, err.Error())
	}
	return nil
}

// createWebhooks creates the missing webhooks. They get new secrets, and no header fields, whose
// values are not exported. domains and boxes are the existing domains and mailboxes, by name and by
// address.
func (im *settingsImporter) createWebhooks(domains, boxes map[string]jsonObject) error {
	there, err := im.listByField("list_webhooks", "url")
	if err != nil {
		return err
	}
	for _, w := range slices.Backward(im.a.Webhooks) {
		if there[w.stringField("url")] != nil {
			continue
		}
		set := w.pickFields("url events description")
		if filters, ok := w["filters"].(map[string]any); ok {
			mailboxIDs, missingMailbox := idsHere(filters["mailboxes"], im.a.Mailboxes, "user_id", "email", boxes)
			domainIDs, missingDomain := idsHere(filters["domains"], im.a.Domains, "domain_id", "domain", domains)
			if missing := cmp.Or(missingMailbox, missingDomain); missing != "" { // without it, the webhook would get too few events
				im.recordFailure("webhook "+w.stringField("url"), missing+", which its filters name, is not there yet")
				continue
			}
			set["filters"] = jsonObject{"mailboxes": mailboxIDs, "domains": domainIDs}
		}
		text, err := im.call("create_webhook", set)
		var made jsonObject
		if err == nil {
			err = json.Unmarshal(text, &made)
		}
		if err != nil {
			im.recordFailure("webhook "+w.stringField("url"), err.Error())
			continue
		}
		im.out.Done++
		if w.stringField("status") == store.WebhookDisabled {
			im.tryCall("webhook "+w.stringField("url"), "update_webhook", jsonObject{"id": made["id"], "status": store.WebhookDisabled})
		}
	}
	return nil
}

// idsHere returns the ids that existing objects have, for ids of the same objects in the export.
// existing has the objects by their nameField. missing is the name of one that does not exist.
func idsHere(exportedIDs any, exported []jsonObject, idField, nameField string, existing map[string]jsonObject) (ids []string, missing string) {
	ids = []string{}
	list, _ := exportedIDs.([]any)
	for _, id := range list {
		for _, o := range exported {
			if o[idField] != id {
				continue
			}
			here := existing[o.stringField(nameField)]
			if here == nil {
				return nil, o.stringField(nameField)
			}
			ids = append(ids, here.stringField(idField))
		}
	}
	return ids, ""
}
