package config

import (
	"reflect"
	"slices"
	"strings"
)

// live are the settings that a running server can change.
const live = " log_level tls_cert tls_key "

// NeedRestart names the settings that have changed in fresh and need a restart.
func (s *Settings) NeedRestart(fresh *Settings) []string {
	var out []string
	was, is := reflect.ValueOf(s).Elem(), reflect.ValueOf(fresh).Elem()
	for i := range was.NumField() {
		name, _, _ := strings.Cut(was.Type().Field(i).Tag.Get("toml"), ",")
		if name == "-" { // both forms of dns
			name = "dns"
		}
		// A certificate from files instead of by ACME, or the other way round, needs a restart.
		needsRestart := !strings.Contains(live, " "+name+" ") || was.Field(i).IsZero() != is.Field(i).IsZero()
		if slices.Contains(out, name) {
			continue
		}
		if needsRestart && !reflect.DeepEqual(was.Field(i).Interface(), is.Field(i).Interface()) {
			out = append(out, name)
		}
	}
	return out
}
