package settings

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// UpdateSettingsIn is the body of update_settings.
type UpdateSettingsIn struct {
	// By key, as in list_settings; quotes around a name may be left out if it has no dot. null
	// removes a value from the store, or a whole entry, such as `relay."r1"`.
	Values map[string]core.Opt[Value] `json:"values" required:"true"`
}

// UpdateSettings changes values in the store, all or none. What holds after a change must satisfy
// the rules of the settings file. The values hold when it returns.
func (s *Service) UpdateSettings(ctx context.Context, who core.Actor, in UpdateSettingsIn) (*core.List[Setting], error) {
	if len(in.Values) == 0 {
		return nil, core.Errorf("nothing_to_update", "Give values with at least one key.")
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	next, joined, err := s.plan(ctx, in.Values)
	if err != nil {
		return nil, err
	}
	list := s.writes(s.stored, next)
	if len(list) == 0 {
		return core.ListOf(s.joined.List), nil
	}
	if err := s.commit(who, list); err != nil {
		return nil, err
	}
	s.apply(s.file, next, joined)
	return core.ListOf(joined.List), nil
}

// A change is a change of the values in the store while it is planned.
type change struct {
	next    []Stored
	keys    map[string]bool // keys that get a value
	entries map[string]bool // entries of which something changes
	first   string          // the first key, for errors without one
}

// plan returns the values that the store will have, and the settings that then hold. It checks
// everything. s.changing is held.
func (s *Service) plan(ctx context.Context, values map[string]core.Opt[Value]) ([]Stored, *Joined, error) {
	if s.file == nil {
		return nil, nil, errNoFile()
	}
	c := &change{next: slices.Clone(s.stored), keys: map[string]bool{}, entries: map[string]bool{}}
	if err := s.takeValues(c, values); err != nil {
		return nil, nil, err
	}
	joined, err := s.join(c)
	if err != nil {
		return nil, nil, err
	}
	if s.removeSecrets(c, joined) {
		joined, err = s.join(c)
		if err != nil {
			return nil, nil, err
		}
	}
	if err := s.checkIgnored(c, joined); err != nil {
		return nil, nil, err
	}
	if err := s.checkRelayUse(joined); err != nil {
		return nil, nil, err
	}
	if err := s.checkAddresses(ctx, c, joined); err != nil {
		return nil, nil, err
	}
	if len(c.next) > maxStored {
		return nil, nil, core.Errorf("invalid_setting", "The store keeps at most %d settings. Set the others in mailstead.toml.", maxStored)
	}
	return c.next, joined, nil
}

// invalid returns the error about the value of a key.
func invalid(key, format string, args ...any) *core.Error {
	message := fmt.Sprintf(format, args...)
	if rest, ok := strings.CutPrefix(message, key+" "); ok { // the file's own words begin with the key
		return core.Errorf("invalid_setting", "%s.", strings.TrimSuffix(message, ".")).With(key, "invalid", rest)
	}
	return core.Errorf("invalid_setting", "%s: %s.", key, strings.TrimSuffix(message, ".")).With(key, "invalid", message)
}

// takeValues puts the values of a request into the change.
func (s *Service) takeValues(c *change, values map[string]core.Opt[Value]) error {
	given := map[string]bool{}
	for _, text := range slices.Sorted(maps.Keys(values)) {
		value := values[text]
		k, err := s.file.Key(text)
		if is := func(v Stored) bool { return v.Key == text }; (err != nil || !k.Editable) && value.Null && slices.ContainsFunc(c.next, is) {
			c.next = slices.DeleteFunc(c.next, is) // what another version has set can still be removed
			continue
		}
		if err != nil {
			return err
		}
		if !k.Editable {
			return core.Errorf("invalid_setting", "%s cannot be changed here: %s.", k.Text, k.Why).With(k.Text, "not_editable", "cannot be changed here")
		}
		if given[k.Text] || k.Entry != "" && !k.Whole && given[k.Entry] || k.Whole && c.entries[k.Entry] {
			return invalid(k.Text, "it is given twice, or removed and set at once")
		}
		given[k.Text] = true
		if c.first == "" {
			c.first = k.Text
		}
		if k.Entry != "" {
			c.entries[k.Entry] = true
		}
		has := func(v Stored) bool { return v.Key == k.Text || k.Whole && strings.HasPrefix(v.Key, k.Entry+".") }
		at := slices.IndexFunc(c.next, has)
		if k.SetBy != "" && (!value.Null || at < 0) {
			return core.Errorf("set_in_file", "%s is set by %s. Change it there, or remove it there first.", k.Text, k.SetBy).With(k.Text, "set_in_file", "is set by "+k.SetBy)
		}
		switch {
		case value.Null:
			c.next = slices.DeleteFunc(c.next, has)
		case k.Whole:
			return invalid(k.Text, "only null is possible for a whole entry; set its keys, such as %s.host", k.Text)
		case len(value.Value.raw) > maxValue:
			return invalid(k.Text, "the value has more than %d bytes", maxValue)
		case at >= 0:
			c.next[at].Value = value.Value
			c.keys[k.Text] = true
		default:
			c.next = append(c.next, Stored{k.Text, value.Value})
			c.keys[k.Text] = true
		}
	}
	return nil
}

// join returns the settings after the change.
func (s *Service) join(c *change) (*Joined, error) {
	joined, err := s.file.Join(c.next)
	if errors.Is(err, ErrNoRelay) {
		return nil, core.Errorf("in_use", "The relay is needed: %s.", err)
	}
	if err != nil {
		return nil, invalid(c.first, "%s", err)
	}
	return joined, nil
}

// removeSecrets removes the secrets of entries that would go to another place after the change: its
// host, port, kind or TLS differs. Secrets that the change gives stay. It reports whether it
// removed some.
func (s *Service) removeSecrets(c *change, joined *Joined) (removed bool) {
	for entry := range c.entries {
		moved := false
		for _, name := range []string{"host", "port", "kind", "tls"} {
			key := entry + "." + name
			was, is := shownText(s.joined, key), shownText(joined, key)
			moved = moved || was != is && was != ""
		}
		if !moved {
			continue
		}
		c.next = slices.DeleteFunc(c.next, func(v Stored) bool {
			k, err := s.file.Key(v.Key)
			drop := err == nil && k.Entry == entry && k.Secret && !c.keys[v.Key]
			removed = removed || drop
			return drop
		})
	}
	return removed
}

// shownText returns the value of a key as JSON; "" if the key is not there.
func shownText(j *Joined, key string) string {
	for _, row := range j.List {
		if row.Key == key && row.Value != nil {
			return string(row.Value.raw)
		}
	}
	return ""
}

// checkIgnored returns an error if the change makes a value in the store invalid, or leaves one so
// that it changes.
func (s *Service) checkIgnored(c *change, joined *Joined) error {
	for i, ignored := range joined.Settings.Ignored {
		lack := joined.Lacks[i]
		before := slices.ContainsFunc(s.joined.Settings.Ignored, func(was core.IgnoredSetting) bool { return was.Key == ignored.Key })
		if lack.Overridden || before && !c.keys[ignored.Key] && !c.entries[ignored.Key] {
			continue
		}
		if lack.Relay && !c.keys[ignored.Key] && !c.entries[ignored.Key] {
			return core.Errorf("in_use", "The relay is needed by %s: %s. Change that first.", ignored.Key, ignored.Why)
		}
		return invalid(ignored.Key, "%s", ignored.Why)
	}
	return nil
}

// maxUsers is how many domains and mailboxes an error names.
const maxUsers = 5

// checkRelayUse returns an error if the change removes a relay that a domain or a mailbox names, or
// the last relay while a domain sends through the first one.
func (s *Service) checkRelayUse(joined *Joined) error {
	gone := map[string]bool{}
	for _, r := range s.Settings().Relays {
		gone[r.Name] = true
	}
	for _, r := range joined.Settings.Relays {
		delete(gone, r.Name)
	}
	if len(gone) == 0 {
		return nil
	}
	var users []string
	err := core.EachRow(s.Store, store.Domains, func(d *store.Domain) string { return d.ID }, func(d *store.Domain) {
		names := gone[d.Relay] || d.Relay == "" && d.SendingMode == core.ViaRelay && len(joined.Settings.Relays) == 0
		if names && len(users) <= maxUsers {
			users = append(users, "the domain "+d.Name)
		}
	})
	if err != nil {
		return err
	}
	err = core.EachRow(s.Store, store.Mailboxes, func(m *store.Mailbox) string { return m.ID }, func(m *store.Mailbox) {
		if gone[m.Relay] && len(users) <= maxUsers {
			users = append(users, "the mailbox "+m.Email)
		}
	})
	if err != nil || len(users) == 0 {
		return err
	}
	if len(users) > maxUsers {
		users = append(users[:maxUsers], "others")
	}
	return core.Errorf("in_use", "The relay is used by %s. Give them another one first.", strings.Join(users, ", "))
}

// lookupWait is how long the look-ups of a change may take together. No other change is made
// meanwhile.
const lookupWait = 3 * time.Second

// checkAddresses returns an error if the change makes the server connect to an address that the
// guard refuses. A name that cannot be looked up now is accepted, since each connection is checked
// again.
func (s *Service) checkAddresses(ctx context.Context, c *change, joined *Joined) error {
	ctx, cancel := context.WithTimeout(ctx, lookupWait)
	defer cancel()
	for key := range c.keys {
		k, err := s.file.Key(key)
		if err != nil {
			return err
		}
		var hosts []string
		switch {
		case strings.HasPrefix(k.Entry, "relay.") && k.Name == "host":
			i := slices.IndexFunc(joined.Settings.Relays, func(r core.Relay) bool { return key == EntryKey("relay", r.Name)+".host" })
			if i >= 0 {
				hosts = append(hosts, joined.Settings.Relays[i].Host)
			}
		case strings.HasPrefix(k.Entry, "relay.") && (k.Name == "sns_url" || k.Name == "ses_url"):
			for _, r := range joined.Settings.Relays {
				if EntryKey("relay", r.Name) == k.Entry {
					hosts = append(hosts, hostOf(r.SNSURL), hostOf(r.SESURL))
				}
			}
		case key == "alerts.url":
			hosts = append(hosts, hostOf(joined.Settings.AlertURL))
		case key == "doctor.port25_targets":
			for _, target := range joined.Settings.Doctor.Port25Targets {
				host, _, _ := net.SplitHostPort(target) // the settings were validated
				hosts = append(hosts, host)
			}
		}
		for _, host := range hosts {
			if host != "" && !s.mayConnect(ctx, host) {
				return invalid(key, "%s has no public address; an address in a private network can be set only in mailstead.toml", host)
			}
		}
	}
	return nil
}

// hostOf returns the host of a URL; "" for "".
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// mayConnect reports whether the guard allows an address of the host, or none is known now.
func (s *Service) mayConnect(ctx context.Context, host string) bool {
	ip, err := netip.ParseAddr(host)
	if err == nil {
		return s.Guard.Allowed(ip)
	}
	found, err := s.Resolver.LookupNetIP(ctx, "ip", host)
	return err != nil || len(found) == 0 || slices.ContainsFunc(found, s.Guard.Allowed)
}
