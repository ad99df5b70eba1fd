package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core"
)

// A settingsModel has what a sequence of changes must lead to. Values are JSON, by key. Entries are
// the relays a, b and c, which have a host, and the destination x.com, which has a relay.
type settingsModel struct{ file, store map[string]string }

var modelScalars = map[string][]string{
	"limits.domains": {"3", "4", `"x"`}, "retention.trash_days": {"1", "2", "-1"}, "spam.dnsbl": {`["a.example"]`, `[]`, `[1]`},
	"log.level": {`"debug"`, `"error"`, `"loud"`}, "simulator.enabled": {"true", "false", "2"}, "outbound": {`"direct"`, `"capture"`, `"pigeon"`},
}

const modelDestination = `destination."x.com".relay`

func modelHost(relay string) string { return `relay."` + relay + `".host` }

// text returns the settings file of the model.
func (m *settingsModel) text() string {
	out := ""
	for _, key := range slices.Sorted(maps.Keys(modelScalars)) {
		if value, ok := m.file[key]; ok {
			out += map[bool]string{true: "log_level", false: key}[key == "log.level"] + " = " + value + "\n"
		}
	}
	for _, r := range []string{"a", "b", "c"} {
		if host, ok := m.file[modelHost(r)]; ok {
			out += "[[relay]]\nname = \"" + r + "\"\nkind = \"custom\"\nhost = " + host + "\n"
		}
	}
	if relay, ok := m.file[modelDestination]; ok {
		out += "[[destination]]\noperator = \"x.com\"\nrelay = " + relay + "\n"
	}
	return out
}

// holds returns what holds for a key, and its source.
func (m *settingsModel) holds(key string) (value, source string) {
	if value, ok := m.file[key]; ok {
		return value, "file"
	}
	if value, ok := m.store[key]; ok && (key != modelDestination || m.hasRelay(value)) {
		return value, "store"
	}
	return "", ""
}

// hasRelay reports whether there is a relay with this name, in JSON.
func (m *settingsModel) hasRelay(name string) bool {
	_, source := m.holds(modelHost(strings.Trim(name, `"`)))
	return source != ""
}

// patch does what update_settings does with one key, and returns the code of its error. An empty
// value is null.
func (m *settingsModel) patch(key, value string) string {
	_, filed := m.file[key]
	_, stored := m.store[key]
	switch {
	case filed && (value != "" || !stored):
		return "set_in_file"
	case value == "":
		old, source := m.holds(modelDestination)
		if name, ok := strings.CutPrefix(key, `relay."`); ok && !filed && stored && source != "" && old == `"`+strings.TrimSuffix(name, `".host`)+`"` {
			return "in_use"
		}
		delete(m.store, key)
	case slices.Index(modelScalars[key], value) == 2:
		return "invalid_setting"
	case key == modelDestination && !m.hasRelay(value):
		return "invalid_setting"
	default:
		m.store[key] = value
	}
	return ""
}

// TestSettingsAgainstAModel changes settings in random order, by API and in the file, with restarts
// between, and compares what holds with a model.
func TestSettingsAgainstAModel(t *testing.T) {
	number := func(variable string, usual int) int {
		if n, err := strconv.Atoi(os.Getenv(variable)); err == nil {
			return n
		}
		return usual
	}
	seed := number("MAILSTEAD_SEED", 40)
	for round := range number("MAILSTEAD_SEQUENCES", 15) {
		t.Run(fmt.Sprintf("seed %d", seed+round), func(t *testing.T) {
			draw := rand.New(rand.NewPCG(uint64(seed+round), 1))
			pick := func(list []string) string { return list[draw.IntN(len(list))] }
			scalars := slices.Sorted(maps.Keys(modelScalars))
			m := &settingsModel{map[string]string{}, map[string]string{}}
			w := newSettingsWorld(t, "")
			var done []string
			for range 25 {
				what := ""
				switch draw.IntN(8) {
				default: // a change by API
					key, value, ask := "", "", ""
					switch draw.IntN(3) {
					case 0:
						key = pick(scalars)
						value = pick(append([]string{""}, modelScalars[key]...))
						ask = key
					case 1:
						name := pick([]string{"a", "b", "c"})
						key, value = modelHost(name), pick([]string{"", `"one.example.com"`, `"two.example.com"`})
						ask = key
						if value == "" {
							ask = "relay." + name
						}
					case 2:
						key, value = modelDestination, pick([]string{"", `"a"`, `"b"`, `"c"`})
						ask = key
						if value == "" {
							ask = `destination."x.com"`
						}
					}
					sent := map[string]any{ask: nil}
					if value != "" {
						sent[ask] = json.RawMessage(value)
						if name, ok := strings.CutPrefix(key, `relay."`); ok {
							sent["relay."+strings.TrimSuffix(name, `".host`)+".kind"] = "custom"
						}
					}
					what = jsonText(t, sent)
					want := m.patch(key, value)
					err := w.patch(what)
					if e, _ := core.AsError(err); want == "" != (err == nil) || e != nil && e.Code != want {
						t.Fatalf("after %v, %s: %v, want %q", done, what, err, want)
					}
				case 6, 7: // a change of the file
					next := &settingsModel{maps.Clone(m.file), m.store}
					key := pick(append([]string{modelHost("a"), modelHost("b"), modelDestination}, scalars...))
					_, has := next.file[key]
					switch {
					case has:
						delete(next.file, key)
					case key == modelDestination:
						next.file[key] = pick([]string{`"a"`, `"b"`, `"c"`})
					case strings.HasPrefix(key, "relay"):
						next.file[key] = `"filed.example.com"`
					default:
						next.file[key] = modelScalars[key][draw.IntN(2)]
					}
					needs, filed := next.file[modelDestination]
					valid := !filed || next.hasRelay(needs)
					if restart := draw.IntN(2) == 0; restart && valid {
						what = "restart with " + next.text()
						w.restart(next.text())
					} else {
						what = "reload of " + next.text()
						if err := w.reload(next.text()); (err == nil) != valid {
							t.Fatalf("after %v, %s: %v, want valid %v", done, what, err, valid)
						}
					}
					if valid {
						m = next
					}
				}
				done = append(done, what)
				list := w.list()
				for _, key := range append([]string{modelHost("a"), modelHost("b"), modelHost("c"), modelDestination}, scalars...) {
					row := list[key]
					value, source := m.holds(key)
					ignored := ""
					if stored, ok := m.store[key]; ok && (source != "store") {
						ignored = stored
					}
					switch {
					case (row.Ignored != nil) != (ignored != ""):
						t.Fatalf("after %v, %s is ignored: %s", done, key, jsonText(t, row))
					case source == "" && row.Key != "" && row.Source != "default" && row.Ignored == nil:
						t.Fatalf("after %v, %s is not set: %s", done, key, jsonText(t, row))
					case source != "" && (row.Source != source || jsonText(t, row.Value) != value):
						t.Fatalf("after %v, %s must be %s from the %s: %s", done, key, value, source, jsonText(t, row))
					}
				}
				var relays []string
				for _, r := range w.Core.Settings().Relays {
					relays = append(relays, r.Name)
				}
				for _, name := range []string{"a", "b", "c"} {
					if slices.Contains(relays, name) != m.hasRelay(name) {
						t.Fatalf("after %v, relays are %v", done, relays)
					}
				}
			}
		})
	}
}
