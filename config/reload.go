package config

import (
	"reflect"
	"slices"
	"strings"
)

// live are the settings that a running server takes on by itself.
const live = " log_level tls_cert tls_key "

// NeedRestart names the settings that are others in fresh and that a running server cannot take on.
func (s *Settings) NeedRestart(fresh *Settings) []string {
	var out []string
	was, is := reflect.ValueOf(s).Elem(), reflect.ValueOf(fresh).Elem()
	for i := range was.NumField() {
		name, _, _ := strings.Cut(was.Type().Field(i).Tag.Get("toml"), ",")
		if name == "-" { // both forms of dns
			name = "dns"
		}
		// Whether the certificate is in a file at all decides who is asked for it.
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
