package main

import "github.com/mailstead/mailstead/config"

// reload reads the file and the certificates again (SIGHUP). What can change while the server runs
// changes, and of the rest it is said that it waits for a restart. A file with a mistake in it
// changes nothing.
func (s *server) reload() {
	fresh, err := s.reread()
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

// reloadCertificates reads the certificate's files, or asks for the one that they do not hold.
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
