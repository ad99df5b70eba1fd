package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/internal/lookup"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/health"
	"github.com/mailstead/mailstead/store/diskroom"
)

func (p *Program) checkHostCommand() *cli.Command {
	flags := append([]cli.Flag{
		&cli.StringSliceFlag{Name: "time-url", Usage: "an HTTPS server whose Date is compared with the clock; may be repeated: the first that answers counts", Value: cli.NewStringSlice(timeServers...)},
		jsonFlag(),
	}, config.Flags()...)
	return p.command("check-host", "tell whether this host is fit for a mail server, before anything is set up", "", func(c *cli.Context, e *env) error {
		if err := noArguments(c); err != nil {
			return err
		}
		return runCheckHost(c.Context, e, c.StringSlice("time-url"))
	}, flags...)
}

// timeServers are HTTPS servers with the right time.
var timeServers = []string{"https://www.google.com/", "https://www.cloudflare.com/", "https://www.debian.org/"}

// Limits of the checks of a host.
const (
	enoughDisk    = 10 << 30 // free bytes below which a disk is small for a mail server
	leastDisk     = 2 << 30  // free bytes below which a disk is too small
	clockTooFar   = time.Minute
	clockFar      = 5 * time.Second // the Date of an answer has whole seconds, and the answer takes its time
	hostCheckTime = 30 * time.Second
)

// runCheckHost checks this host as it will matter for a mail server with the hostname in the
// settings. It needs no data directory, and leaves nothing behind. It returns an error if a check
// has the status error.
func runCheckHost(ctx context.Context, e *env, timeURLs []string) error {
	s, err := e.settings()
	if err != nil {
		return err
	}
	if s.Sandbox() {
		return config.Mistake(errors.New("--hostname is required: the public name that this host is to have, such as mail.example.com"))
	}
	ctx, cancel := context.WithTimeout(ctx, hostCheckTime)
	defer cancel()
	out := &health.Report{Hostname: s.Hostname.String(), CheckedAt: core.Time{Time: time.Now()}}
	ips, address := checkPublicAddress(ctx, s)
	out.Checks = append(out.Checks, address...)
	out.Checks = append(out.Checks, hostPortChecks(checkPorts(s, e.serverRuns()))...)
	surroundings, err := e.checkSurroundings(ctx, s, ips)
	if err != nil {
		return err
	}
	out.Checks = append(append(out.Checks, surroundings...), checkHostDisk(e.dir), checkHostClock(ctx, s, timeURLs))
	out.Status = health.WorstStatus(out.Checks)
	text := checksText(out.Checks, newPrinter(e.stdout))
	if out.Status == health.OK {
		text += "\nThis host is fit for a mail server. Go on with `mailstead setup`.\n"
	}
	if err := e.print(out, text); err != nil {
		return err
	}
	if out.Status == health.Error {
		return errors.New("this host is not fit for a mail server until the errors are fixed")
	}
	return nil
}

// hostCheck returns the result of one check. mend says what to do; "" if nothing is wrong.
func hostCheck(code, status, subject, mend, format string, args ...any) health.Check {
	c := health.Check{Code: code, Status: status, Subject: subject, Message: fmt.Sprintf(format, args...)}
	if mend != "" {
		c.Mend = &mend
	}
	return c
}

// checkPublicAddress finds the public addresses of this host: those in the settings, those of its
// interfaces, or those to which its hostname leads.
func checkPublicAddress(ctx context.Context, s *config.Settings) (ips []netip.Addr, out []health.Check) {
	const code = "public_address"
	ips, err := s.PublicIPs()
	if err != nil {
		ips = namedIPs(ctx, s)
		if len(ips) == 0 {
			return nil, []health.Check{hostCheck(code, health.Error, s.Hostname.String(),
				"If the provider translates the address of this host, give --public-ip with the public one; else have a host with a public address.",
				"No network interface has a public address, and the name leads nowhere.")}
		}
	}
	isOwn := s.IsOwn(nil)
	for _, ip := range ips {
		switch {
		case !config.IsPublic(ip):
			out = append(out, hostCheck(code, health.Error, ip.String(), "Have a host with a public address of its own, or give that address with --public-ip.", "It is not a public address, so other mail servers cannot reach this host."))
		case !isOwn(ip):
			out = append(out, hostCheck(code, health.Warning, ip.String(), "Have every port of this host forwarded by the provider or the router, with the addresses of clients kept.", "It is not an address of this host's interfaces, so the address is translated."))
		default:
			out = append(out, hostCheck(code, health.OK, ip.String(), "", "It is an address of this host."))
		}
	}
	return ips, out
}

// namedIPs returns the addresses to which the hostname in the settings leads. There are none if it
// has no record yet. It asks the resolver in the settings, or else that of the system.
func namedIPs(ctx context.Context, s *config.Settings) []netip.Addr {
	var o lookup.Options
	if s.Resolver.On() {
		o.Servers = []string{s.Resolver.String()}
	}
	ips, _ := lookup.New(o).LookupNetIP(ctx, "ip", s.Hostname.String()+".")
	for i := range ips {
		ips[i] = ips[i].Unmap()
	}
	return ips
}

// hostPortChecks returns the checks of the ports that the server is to listen on.
func hostPortChecks(ports []setupPort) (out []health.Check) {
	var free []string
	for _, p := range ports {
		subject := fmt.Sprintf("port %d (%s)", p.Port, p.Name)
		if p.Free {
			free = append(free, fmt.Sprint(p.Port))
			continue
		}
		if p.mend == "" { // Mailstead itself has it
			out = append(out, hostCheck("ports", health.OK, subject, "", "%s", p.Message))
			continue
		}
		out = append(out, hostCheck("ports", health.Error, subject, p.mend, "%s", strings.TrimSuffix(p.Message, " "+p.mend)))
	}
	if len(free) > 0 {
		out = append(out, hostCheck("ports", health.OK, "free ports", "", "Nobody listens on %s.", strings.Join(slices.Compact(free), ", ")))
	}
	return out
}

// checkSurroundings makes those checks of doctor that need no installation: the resolver, port 25
// outwards, and block lists; and it looks up the reverse names. They run in an installation in a
// temporary directory.
func (e *env) checkSurroundings(ctx context.Context, s *config.Settings, ips []netip.Addr) (out []health.Check, err error) {
	dir, err := os.MkdirTemp("", "mailstead-check-host-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	bare := *s
	bare.Backup.To, bare.PublicIP = "", ips
	codes := []string{"resolver", "port25_out", "blocklist"}
	if len(ips) == 0 {
		bare.PublicIP, codes = []netip.Addr{netip.IPv6Loopback()}, codes[:2] // the service needs an address; it is not shown
	}
	err = e.Open(dir, &bare, true, func(o *operator.Operator) error {
		o.Service.Health.Host = new(health.Host)
		report, err := o.Service.Health.Doctor(ctx, struct{}{})
		if err != nil {
			return err
		}
		for _, c := range report.Checks {
			if slices.Contains(codes, c.Code) {
				out = append(out, c)
			}
		}
		for _, ip := range ips {
			out = append(out, checkReverseName(ctx, o.Service.Core, ip, s.Hostname.String()))
		}
		return nil
	})
	return out, err
}

// checkReverseName checks the reverse name of an address that mail will come from.
func checkReverseName(ctx context.Context, c *core.Core, ip netip.Addr, hostname string) health.Check {
	const code = "ptr"
	names, _, err := c.ReverseNames(ctx, ip)
	mend := fmt.Sprintf("Have the provider of this host set the reverse name (PTR) of %s to %s.", ip, hostname)
	switch {
	case err != nil:
		return hostCheck(code, health.Warning, ip.String(), mend, "Its reverse name cannot be looked up: %v.", err)
	case slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(strings.TrimSuffix(name, "."), hostname) }):
		return hostCheck(code, health.OK, ip.String(), "", "Its reverse name is %s.", hostname)
	case len(names) == 0 && ip.Is6():
		return hostCheck(code, health.Warning, ip.String(), mend, "It has no reverse name (PTR record), so mail is sent over IPv4 only.")
	case len(names) == 0:
		return hostCheck(code, health.Error, ip.String(), mend, "It has no reverse name (PTR record), so many receivers refuse mail from it.")
	}
	return hostCheck(code, health.Warning, ip.String(), mend, "Its reverse name is %s.", strings.Join(names, ", "))
}

// checkHostDisk checks the room on the disk of a data directory, which need not exist yet.
func checkHostDisk(dir string) health.Check {
	const code = "disk_space"
	path, err := filepath.Abs(dir)
	for err == nil && !isDir(path) && path != filepath.Dir(path) {
		path = filepath.Dir(path)
	}
	free, total, err := diskroom.Free(path)
	const mend = "Make the disk larger, or name a directory on another one with --data."
	switch {
	case err != nil:
		return hostCheck(code, health.Skipped, path, "", "The system does not tell how much of the disk is free.")
	case free < leastDisk:
		return hostCheck(code, health.Error, path, mend, "Only %s of %s are free.", bytesText(free), bytesText(total))
	case free < enoughDisk:
		return hostCheck(code, health.Warning, path, mend, "%s of %s are free, which is little for mail.", bytesText(free), bytesText(total))
	}
	return hostCheck(code, health.OK, path, "", "%s of %s are free.", bytesText(free), bytesText(total))
}

// checkHostClock compares the clock of this host with the Date of the first HTTPS server that
// answers.
func checkHostClock(ctx context.Context, s *config.Settings, urls []string) health.Check {
	const code, subject = "clock", "the clock of this host"
	const mend = "Have the clock set by NTP: `timedatectl set-ntp true`."
	roots, err := config.RootCAs(s.CAFile)
	var reasons []string
	if err != nil {
		urls, reasons = nil, []string{err.Error()}
	}
	for _, url := range urls {
		off, err := clockOffset(ctx, s, url, roots)
		if err != nil {
			reasons = append(reasons, err.Error())
			continue
		}
		status := health.OK
		switch {
		case off.Abs() > clockTooFar:
			status = health.Error
		case off.Abs() > clockFar:
			status = health.Warning
		default:
			return hostCheck(code, status, subject, "", "It agrees with %s.", url)
		}
		direction := "ahead of"
		if off < 0 {
			direction = "behind"
		}
		return hostCheck(code, status, subject, mend, "It is %s %s %s.", off.Abs().Round(time.Second), direction, url)
	}
	return hostCheck(code, health.Warning, subject, "See that HTTPS works from this host, or name another server with --time-url.", "It could not be compared: %s.", cmp.Or(strings.Join(reasons, "; "), "no server is named"))
}

// clockOffset returns by how much the clock of this host is ahead of the Date that an HTTPS server
// answers. The certificate of the server must be trusted, but need not be valid now, since the
// clock may be wrong.
func clockOffset(ctx context.Context, s *config.Settings, address string, roots *x509.CertPool) (time.Duration, error) {
	at, err := url.Parse(address)
	if err != nil || at.Scheme != "https" || at.Host == "" {
		return 0, fmt.Errorf("%q is not the URL of an HTTPS server", address)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	dialer := &net.Dialer{}
	if s.Resolver.On() {
		dialer.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, s.Resolver.String())
		}}
	}
	client := &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: dialer.DialContext, DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(c tls.ConnectionState) error { return verifyIgnoringTime(c, at.Hostname(), roots) }},
		},
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, address, http.NoBody)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	resp, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	_ = resp.Body.Close() // it is empty
	took := time.Since(began)
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return 0, fmt.Errorf("%s answers no Date", address)
	}
	return began.Add(took / 2).Sub(date.Add(time.Second / 2)), nil
}

// verifyIgnoringTime verifies the certificate of a server as it was in the middle of its life.
func verifyIgnoringTime(c tls.ConnectionState, host string, roots *x509.CertPool) error {
	leaf := c.PeerCertificates[0]
	others := x509.NewCertPool()
	for _, cert := range c.PeerCertificates[1:] {
		others.AddCert(cert)
	}
	middle := leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2)
	_, err := leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: others, CurrentTime: middle})
	return err
}
