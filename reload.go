package main

import "github.com/mailstead/mailstead/config"

// reload reads the settings and the certificates again (SIGHUP). It applies what can change while
// the server runs, and logs which other settings need a restart. A file with a mistake changes
// nothing.
func (s *server) reload() {
	fresh, err := s.loadSettings()
	if err != nil {
		s.log.Error("SIGHUP: the settings stay as they were", "error", err)
		return
	}
	s.level.Set(fresh.LogLevel.Level())
	if err := s.reloadCertificates(fresh); err != nil {
		s.log.Error("SIGHUP: the certificates before stay in use", "error", err)
	}
	if changed := s.settings.NeedRestart(fresh); len(changed) > 0 {
		s.log.Warn("SIGHUP: some settings have changed that need a restart", "settings", changed)
	}
	s.log.Info("SIGHUP: read the settings again", "log_level", fresh.LogLevel.String())
}

// reloadCertificates reads the certificate from its files, or asks the certificate authority again.
func (s *server) reloadCertificates(fresh *config.Settings) error {
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
