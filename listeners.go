package main

import (
	"errors"
	"fmt"
	"net"

	"github.com/mailstead/mailstead/config"
)

// listeners are the open sockets. One that is off is nil.
type listeners struct {
	http, httpTLS, smtp, submission, submissions, imap, imaps, dnsTCP net.Listener
	dnsUDP                                                            *net.UDPConn
}

// listen opens every socket that is not off, or none.
func listen(s *config.Settings) (*listeners, error) {
	l := &listeners{}
	for _, one := range []struct {
		name string
		at   config.Address
		to   *net.Listener
	}{
		{"http", s.HTTP, &l.http}, {"http-tls", s.HTTPTLS, &l.httpTLS}, {"smtp", s.SMTP, &l.smtp},
		{"submission", s.Submission, &l.submission}, {"submissions", s.Submissions, &l.submissions},
		{"imap", s.IMAP, &l.imap}, {"imaps", s.IMAPS, &l.imaps},
	} {
		if !one.at.On() {
			continue
		}
		ln, err := net.Listen("tcp", one.at.String())
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listen for --%s: %w", one.name, err), l.close())
		}
		*one.to = ln
	}
	if err := l.listenDNS(s.DNS); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for --dns: %w", err), l.close())
	}
	return l, nil
}

// maxDNSTries is how many ports are tried, since one must be free for both UDP and TCP.
const maxDNSTries = 20

func (l *listeners) listenDNS(at config.Address) error {
	if !at.On() {
		return nil
	}
	addr, err := net.ResolveUDPAddr("udp", at.String())
	if err != nil {
		return err
	}
	for range maxDNSTries {
		if l.dnsUDP, err = net.ListenUDP("udp", addr); err != nil {
			return err
		}
		l.dnsTCP, err = net.Listen("tcp", l.dnsUDP.LocalAddr().String())
		if err == nil {
			return nil
		}
		l.dnsUDP.Close()
		l.dnsUDP = nil
		if addr.Port != 0 {
			return err
		}
	}
	return err
}

func (l *listeners) all() []net.Listener {
	return []net.Listener{l.http, l.httpTLS, l.smtp, l.submission, l.submissions, l.imap, l.imaps, l.dnsTCP}
}

// close closes every socket that is open.
func (l *listeners) close() error {
	var errs []error
	for _, ln := range l.all() {
		if ln != nil {
			if err := ln.Close(); !errors.Is(err, net.ErrClosed) {
				errs = append(errs, err)
			}
		}
	}
	if l.dnsUDP != nil {
		if err := l.dnsUDP.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ready is the content of the ready file: the process, and the address of each open listener.
type ready struct {
	PID         int    `json:"pid"`
	HTTP        string `json:"http,omitempty"`
	HTTPTLS     string `json:"http_tls,omitempty"`
	SMTP        string `json:"smtp,omitempty"`
	Submission  string `json:"submission,omitempty"`
	Submissions string `json:"submissions,omitempty"`
	IMAP        string `json:"imap,omitempty"`
	IMAPS       string `json:"imaps,omitempty"`
	DNS         string `json:"dns,omitempty"`
}

func (l *listeners) ready(pid int) ready {
	return ready{
		PID: pid, HTTP: addrOf(l.http), HTTPTLS: addrOf(l.httpTLS), SMTP: addrOf(l.smtp), Submission: addrOf(l.submission),
		Submissions: addrOf(l.submissions), IMAP: addrOf(l.imap), IMAPS: addrOf(l.imaps), DNS: addrOf(l.dnsTCP),
	}
}

func addrOf(l net.Listener) string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}

// portOf is the port of the first listener that is open; 0 if none is.
func portOf(all ...net.Listener) int {
	for _, l := range all {
		if l != nil {
			if a, ok := l.Addr().(*net.TCPAddr); ok {
				return a.Port
			}
		}
	}
	return 0
}
