package main

import (
	"reflect"
	"slices"
	"strings"
)

// reload reads the file and the certificates again (SIGHUP). What can change while the server runs
// changes, and of the rest it is said that it waits for a restart. A file with a mistake in it
// changes nothing.
func (s *server) reload() {
	fresh, err := s.reread()
	if err != nil {
		s.log.Error("SIGHUP: the settings stay as they were", "error", err)
		return
	}
	s.level.Set(fresh.LogLevel.level())
	if err := s.reloadCertificates(fresh); err != nil {
		s.log.Error("SIGHUP: the certificates before stay in use", "error", err)
	}
	if changed := s.settings.differences(fresh); len(changed) > 0 {
		s.log.Warn("SIGHUP: some settings have changed that need a restart", "settings", changed)
	}
	s.log.Info("SIGHUP: read the settings again", "log_level", fresh.LogLevel.text)
}

// reloadCertificates reads the certificate's files, or asks for the one that they do not hold.
func (s *server) reloadCertificates(fresh *settings) error {
	if s.certs == nil {
		return nil
	}
	if fresh.TLSCert != "" && s.certs.file.Load() != nil {
		if err := s.certs.read(fresh.TLSCert, fresh.TLSKey); err != nil {
			return err
		}
	}
	return s.inst.svc.RetryCertificate()
}

// live are the settings that reload puts into effect by itself.
const live = " log_level tls_cert tls_key "

// differences names the settings that differ and need a restart.
func (s *settings) differences(fresh *settings) []string {
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
