package health

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/lookup"
	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/mail/spf"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/keyfile"
)

// A Host describes the host that the program runs on, as far as the checks need it.
type Host struct {
	Running bool   // false: the checks are for a server that is stopped
	Ports   []Port // of its listeners
}

// A Port is a port that should be reachable at every public address of the host.
type Port struct {
	Name   string // of the setting, such as smtp
	Number int
	Inner  string // the address that it listens at if it listens only at one that is not public, as behind a proxy; "": all addresses
}

// Limits of a check's network operations.
const (
	checkTimeout   = 20 * time.Second // for one run of all checks
	connectTimeout = 5 * time.Second  // for one connection to a port of this host
)

// skipUnlessPublic returns a skipped check if this is the sandbox or if nothing outside of this
// process is checked; otherwise nil.
func (s *Service) skipUnlessPublic(code string) []Check {
	switch {
	case s.Config.Sandbox:
		return []Check{{Code: code, Status: Skipped, Subject: s.Hostname(), Message: "This is the sandbox, which nobody outside reaches."}}
	case s.Host == nil:
		return []Check{{Code: code, Status: Skipped, Subject: s.Hostname(), Message: "Nothing outside this process is looked at here."}}
	}
	return nil
}

// checkDirectory looks for files that other users of this machine can read or change.
func (s *Service) checkDirectory(context.Context) (out []Check) {
	const code = "data_directory"
	dir := s.Store.Dir()
	if s.Config.Sandbox {
		return []Check{{Code: code, Status: Skipped, Subject: dir, Message: "This is the sandbox, which keeps no secrets of others."}}
	}
	for _, one := range []struct {
		path string
		mode fs.FileMode
	}{{dir, 0o700}, {filepath.Join(dir, keyfile.Name), 0o600}, {filepath.Join(dir, "mailstead.toml"), 0o600}} {
		info, err := os.Stat(one.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			out = append(out, badResult(code, Error, one.path, fmt.Sprintf("It cannot be read: %v.", err), "Give it to the user that runs Mailstead: `chown -R USER "+dir+"`.")...)
		case info.Mode().Perm()&0o077 != 0:
			out = append(out, badResult(code, Warning, one.path, fmt.Sprintf("Other users of this machine have rights to it (mode %04o).", info.Mode().Perm()),
				fmt.Sprintf("Run `chmod %04o %s`.", one.mode, one.path))...)
		}
	}
	if out == nil {
		return okResult(code, dir, "Only the user that runs Mailstead can read it.")
	}
	return out
}

func (s *Service) checkResolver(ctx context.Context) []Check {
	const code, subject = "resolver", "the DNS resolver"
	if skip := s.skipUnlessPublic(code); skip != nil {
		return skip
	}
	began := time.Now()
	_, err := s.Resolver.LookupNetIP(lookup.Fresh(ctx), "ip", s.Hostname()+".")
	took := time.Since(began).Round(time.Millisecond)
	const mend = "Have a resolver on this host, such as unbound, and name it with resolver = \"127.0.0.1:53\", or mend the one in /etc/resolv.conf."
	switch {
	case err != nil && !lookup.IsNotFound(err):
		return badResult(code, Error, subject, fmt.Sprintf("It does not answer a question about %s: %v.", s.Hostname(), err), mend)
	case took > 2*time.Second:
		return badResult(code, Warning, subject, fmt.Sprintf("It took %s to answer a question about %s.", took, s.Hostname()), mend)
	}
	return okResult(code, subject, "It answers, in %s.", took)
}

// addressRecordText returns an address record in zone file format.
func addressRecordText(name string, ip netip.Addr) string {
	kind := "A"
	if ip.Is6() {
		kind = "AAAA"
	}
	return fmt.Sprintf("%s. %s %s", name, kind, ip)
}

// addressesOf looks up the addresses of a name without the cache. A name without addresses is not
// an error.
func (s *Service) addressesOf(ctx context.Context, name string) ([]netip.Addr, error) {
	found, err := s.Resolver.LookupNetIP(lookup.Fresh(ctx), "ip", name+".")
	if err != nil && !lookup.IsNotFound(err) {
		return nil, err
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	return found, nil
}

func (s *Service) checkAddress(ctx context.Context) (out []Check) {
	const code = "hostname_address"
	name := s.Hostname()
	if skip := s.skipUnlessPublic(code); skip != nil {
		return skip
	}
	found, err := s.addressesOf(ctx, name)
	if err != nil {
		return badResult(code, Error, name, fmt.Sprintf("It cannot be looked up: %v.", err), "See what the check of the resolver says, and whether the nameservers of the domain answer.")
	}
	for _, ip := range s.Config.PublicIPs {
		if !slices.Contains(found, ip) {
			out = append(out, badResult(code, Error, name, fmt.Sprintf("It does not lead to this host's address %s.", ip),
				fmt.Sprintf("Add the record `%s` where the DNS of that domain is kept; if %s is not this host's address, set public_ip.", addressRecordText(name, ip), ip))...)
		}
	}
	for _, ip := range found {
		if !slices.Contains(s.Config.PublicIPs, ip) {
			out = append(out, badResult(code, Error, name, fmt.Sprintf("It also leads to %s, which is not an address of this host.", ip),
				fmt.Sprintf("Delete the record `%s`; if the address is this host's, add it to public_ip.", addressRecordText(name, ip)))...)
		}
	}
	out = append(out, s.checkHostSPF(ctx, code, found)...)
	if out == nil {
		return okResult(code, name, "It leads to this host.")
	}
	return out
}

// checkHostSPF checks whether the SPF record of the hostname lets this host send in its own name,
// as it does with reports and notifications. hostIPs are the addresses that the DNS has for the
// hostname.
func (s *Service) checkHostSPF(ctx context.Context, code string, hostIPs []netip.Addr) []Check {
	name := s.Hostname()
	texts, err := s.Resolver.LookupTXT(lookup.Fresh(ctx), name+".")
	if err != nil && !lookup.IsNotFound(err) {
		return badResult(code, Warning, name, fmt.Sprintf("Its SPF record cannot be looked up: %v.", err), "See what the check of the resolver says, and whether the nameservers of the domain answer.")
	}
	texts = slices.DeleteFunc(texts, func(text string) bool { return !spf.IsRecord(text) })
	record := fmt.Sprintf("`%s. TXT \"%s\"`", name, spf.ForHost(s.Settings().Sending.Addresses()))
	switch {
	case len(texts) == 0:
		return badResult(code, Warning, name, "It has no SPF record, so the reports and letters that this host sends in its own name are not proven.",
			"Add the record "+record+" where the DNS of that domain is kept.")
	case len(texts) > 1:
		return badResult(code, Warning, name, "It has more than one SPF record, so receivers ignore all of them.", "Replace them with the record "+record+".")
	}
	for _, ip := range s.SendingIPs() {
		if !spfMayAllow(texts[0], ip, hostIPs) {
			return badResult(code, Warning, name, fmt.Sprintf("Its SPF record does not let %s send, from where this host does.", ip), "Replace it with the record "+record+".")
		}
	}
	return nil
}

// spfMayAllow reports whether an SPF record of a name may allow an address. nameIPs are the
// addresses that the DNS has for the name. Terms that refer to other names are assumed to allow the
// address.
func spfMayAllow(record string, ip netip.Addr, nameIPs []netip.Addr) bool {
	terms, end := spf.Parse(record).Split()
	return slices.ContainsFunc(append(terms, end), func(t spf.Term) bool {
		switch {
		case t.Qualifier != '+' && t.Name != "redirect":
			return false
		case t.Name == "ip4" || t.Name == "ip6":
			return t.Network.Contains(ip)
		case t.Name == "a" && t.Value == "" && t.Lengths == "":
			return slices.Contains(nameIPs, ip)
		}
		return t.NeedsLookup() || t.Name == "all"
	})
}

func (s *Service) checkReverse(ctx context.Context) (out []Check) {
	const code = "ptr"
	if skip := s.skipUnlessPublic(code); skip != nil {
		return skip
	}
	named, known := true, true // whether every IPv6 address has a reverse name, and whether all lookups succeeded
	for _, ip := range s.SendingIPs() {
		names, back, err := s.ReverseNames(ctx, ip)
		named, known = named && (back || ip.Is4()), known && err == nil
		says := "It has no reverse name (PTR record)"
		if len(names) > 0 {
			says = "Its reverse name is " + strings.Join(names, ", ") + ", which does not lead back to it"
		}
		mend := fmt.Sprintf("Have the provider of this host set the reverse name (PTR) of %s to %s.", ip, cmp.Or(s.Settings().Sending.Helo, s.Hostname()))
		switch {
		case err != nil:
			out = append(out, badResult(code, Warning, ip.String(), fmt.Sprintf("Its reverse name cannot be looked up: %v.", err), mend)...)
		case back:
			out = append(out, okResult(code, ip.String(), "Its reverse name is %s.", strings.Join(names, ", "))...)
		case ip.Is6():
			out = append(out, badResult(code, Warning, ip.String(), says+". Mail is sent over IPv4 only, since many receivers refuse mail from such an address.", mend)...)
		case s.Outbound() != core.ViaDirect:
			out = append(out, badResult(code, Warning, ip.String(), says+". Mail that does not go through a relay is refused by many receivers.", mend)...)
		default:
			out = append(out, badResult(code, Error, ip.String(), says+", so many receivers refuse mail from it.", mend)...)
		}
	}
	if known {
		s.IPv6Named.Store(named)
	}
	return out
}

// checkPorts connects to every port of the listeners at every public address. This shows that they
// listen there, but not that a firewall before this host lets others through.
func (s *Service) checkPorts(ctx context.Context) (out []Check) {
	const code = "ports"
	if skip := s.skipUnlessPublic(code); skip != nil {
		return skip
	}
	if !s.Host.Running {
		return badResult(code, Error, s.Hostname(), "The server does not run.", "Start it: `systemctl start mailstead`, or "+s.commandLine("serve")+".")
	}
	type place struct {
		port Port
		ip   netip.Addr
	}
	var places []place
	for _, ip := range s.Config.PublicIPs {
		for _, port := range s.Host.Ports {
			if port.Inner == "" {
				places = append(places, place{port, ip})
			}
		}
	}
	own := ownAddresses()
	found := make([][]Check, len(places))
	var all sync.WaitGroup
	for i, at := range places {
		all.Go(func() {
			addr := netip.AddrPortFrom(at.ip, uint16(at.port.Number)).String()
			conn, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, "tcp", addr)
			if err == nil {
				conn.Close()
				return
			}
			status, mend := Error, fmt.Sprintf("See that nothing on this host blocks port %d (`nft list ruleset`), and that %s = \":%d\" is set.", at.port.Number, strings.ReplaceAll(at.port.Name, "-", "_"), at.port.Number)
			if !slices.Contains(own, at.ip) { // the host is behind address translation, which may not route its public address back to it
				status, mend = Warning, fmt.Sprintf("Try from another machine: `nc -vz %s %d`. If that fails too, have port %d forwarded to this host.", at.ip, at.port.Number, at.port.Number)
			}
			found[i] = badResult(code, status, at.port.Name+" at "+addr, fmt.Sprintf("It cannot be reached from this host: %v.", err), mend)
		})
	}
	all.Wait()
	out = append(slices.Concat(found...), s.checkHiddenClients()...)
	if out == nil {
		return okResult(code, s.Hostname(), "Every port can be reached from this host itself, and other mail servers are seen by their own addresses.")
	}
	return out
}

// ownAddresses returns the addresses of this machine's interfaces.
func ownAddresses() (out []netip.Addr) {
	addrs, _ := net.InterfaceAddrs() // none, if they cannot be read
	for _, a := range addrs {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, prefix.Addr().Unmap())
		}
	}
	return out
}

func (s *Service) checkCertificate(context.Context) []Check {
	const code = "certificate"
	name := s.Hostname()
	switch skip := s.skipUnlessPublic(code); {
	case skip != nil:
		return skip
	case !s.Host.Running:
		return []Check{{Code: code, Status: Skipped, Subject: name, Message: "The server does not run."}}
	case s.Certificates.Host == nil:
		return []Check{{Code: code, Status: Skipped, Subject: name, Message: "This server speaks no TLS itself."}}
	}
	mend := "Set tls_cert and tls_key to a certificate for " + name + " and its key, and have the server read them: `systemctl reload mailstead`."
	byACME := s.Config.ACME != nil && s.Config.ACME.Host
	if byACME {
		mend = "See that port 80 of " + name + " can be reached from outside, since the certificate authority asks there; " + s.commandLine("call", "list_jobs", `{"type":"certificate"}`) + " names what went wrong."
	}
	cert := s.Certificates.Host()
	if cert == nil {
		return badResult(code, Error, name, "There is no certificate.", mend)
	}
	chain := x509.NewCertPool()
	for _, der := range cert.Certificate[1:] {
		if one, err := x509.ParseCertificate(der); err == nil {
			chain.AddCert(one)
		}
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return badResult(code, Error, name, fmt.Sprintf("The certificate cannot be read: %v.", err), mend)
	}
	now := time.Now()
	left, life := leaf.NotAfter.Sub(now), leaf.NotAfter.Sub(leaf.NotBefore)
	until := leaf.NotAfter.UTC().Format(time.RFC3339)
	_, err = leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: s.Config.RootCAs, Intermediates: chain, CurrentTime: now})
	switch {
	case err != nil && byACME && leaf.CheckSignature(leaf.SignatureAlgorithm, leaf.RawTBSCertificate, leaf.Signature) == nil:
		return badResult(code, Error, name, "The certificate authority has given none yet, so clients see one that this host made itself, and refuse it.", mend)
	case left <= 0:
		return badResult(code, Error, name, "The certificate has expired at "+until+".", mend)
	case err != nil:
		return badResult(code, Error, name, fmt.Sprintf("Clients refuse the certificate: %v.", err), mend)
	case left < life/12:
		return badResult(code, Error, name, "The certificate expires at "+until+", and was not renewed.", mend)
	case left < life/5:
		return badResult(code, Warning, name, "The certificate expires at "+until+", and was not renewed.", mend)
	}
	return okResult(code, name, "The certificate is valid until %s.", until)
}

// checkNameservers checks whether the names of our nameservers resolve to this host, or to the
// secondary with that name.
func (s *Service) checkNameservers(ctx context.Context) (out []Check) {
	const code = "nameservers"
	if skip := s.skipUnlessPublic(code); skip != nil {
		return skip
	}
	here := slices.IndexFunc(s.Host.Ports, func(p Port) bool { return p.Name == "dns" })
	if s.Host.Running && here < 0 {
		return []Check{{Code: code, Status: Skipped, Subject: s.Hostname(), Message: "The DNS server is off."}}
	}
	needed, err := s.servesZones()
	if err != nil {
		return s.storeErrorResult(code, s.Hostname(), err)
	}
	status := Warning // if no domain is served from here
	if needed {
		status = Error
	}
	elsewhere := s.Config.OtherNameservers()
	places := map[netip.Addr]bool{}
	for _, name := range s.Config.Nameservers {
		right := elsewhere[name]
		if right == nil {
			right = s.Config.PublicIPs
		}
		found, err := s.addressesOf(ctx, name)
		for _, ip := range found {
			places[ip] = true
		}
		switch {
		case err != nil:
			out = append(out, badResult(code, status, name, fmt.Sprintf("It cannot be looked up: %v.", err), "See what the check of the resolver says.")...)
		case !slices.ContainsFunc(found, func(ip netip.Addr) bool { return slices.Contains(right, ip) }) && len(right) > 0:
			out = append(out, badResult(code, status, name, "The name of this nameserver does not lead to it.",
				fmt.Sprintf("Add the record `%s` where the DNS of that domain is kept. If that domain is to be served from here, set it as glue at its registrar too.", addressRecordText(name, right[0])))...)
		}
	}
	if out != nil {
		return out
	}
	if here >= 0 {
		switch p := s.Host.Ports[here]; {
		case p.Inner != "":
			return okResult(code, s.Hostname(), "The names of the nameservers lead to them; the DNS server listens at %s, so port 53 has to lead there.", net.JoinHostPort(p.Inner, strconv.Itoa(p.Number)))
		case p.Number != 53:
			return okResult(code, s.Hostname(), "The names of the nameservers lead to them; the DNS server listens at port %d, so port 53 has to lead there.", p.Number)
		}
	}
	if len(places) == 1 {
		return okResult(code, s.Hostname(), "All names of nameservers lead to one address, so zones cannot be asked while it is away; [[dns.secondaries]] names copies elsewhere.")
	}
	return okResult(code, s.Hostname(), "The names of the nameservers lead to them.")
}

// servesZones reports whether our DNS server is to serve at least one domain.
func (s *Service) servesZones() (some bool, err error) {
	err = s.forEachDomain(func(d *store.Domain) { some = some || d.DNSProvider == store.DomainProviderBuiltin })
	return some, err
}

func (s *Service) forEachDomain(see func(*store.Domain)) error {
	return core.EachRow(s.Store, store.Domains, func(d *store.Domain) string { return d.ID }, see)
}

func (s *Service) storeErrorResult(code, subject string, err error) []Check {
	return badResult(code, Error, subject, fmt.Sprintf("The store cannot be read: %v.", err), "Stop the server and run "+s.commandLine("check")+".")
}

func (s *Service) checkDomains(context.Context) (out []Check) {
	const code, subject = "domain_dns", "the domains of this host"
	failing, obsolete := 0, 0
	err := s.forEachDomain(func(d *store.Domain) {
		if tags := core.ObsoleteDMARC(d); len(tags) > 0 && obsolete < maxNamed {
			obsolete++
			out = append(out, badResult(code, Warning, d.Name, "Its DMARC record has "+strings.Join(tags, ", ")+", which receivers do not look at any more (RFC 9989).",
				"Take these tags out of its DMARC record. To test a policy, use t=y.")...)
		}
		if d.FailingSince.IsZero() {
			return
		}
		if failing++; failing <= maxNamed {
			out = append(out, badResult(code, Warning, d.Name, "Its DNS records have been wrong since "+d.FailingSince.UTC().Format(time.RFC3339)+".",
				s.commandLine("call", "--account", d.AccountID, "get_domain", fmt.Sprintf(`{"domain_id":%q}`, d.ID))+" and the dashboard name the records to change.")...)
		}
	})
	switch {
	case err != nil:
		return s.storeErrorResult(code, subject, err)
	case failing > maxNamed:
		return append(out, badResult(code, Warning, subject, fmt.Sprintf("The records of %d more domains are wrong.", failing-maxNamed), "The dashboard names them.")...)
	case out == nil:
		return okResult(code, subject, "The DNS of every domain is right, as far as it was looked up.")
	}
	return out
}

// checkPort25 connects to other mail servers, since many hosting providers block port 25.
func (s *Service) checkPort25(ctx context.Context) []Check {
	const code, subject = "port25_out", "port 25 of other mail servers"
	doctor := s.Settings().Doctor
	targets := doctor.Port25Targets
	switch skip := s.skipUnlessPublic(code); {
	case skip != nil:
		return skip
	case s.Outbound() != core.ViaDirect:
		return []Check{{Code: code, Status: Skipped, Subject: subject, Message: "Mail goes out through a relay."}}
	case len(targets) == 0:
		return []Check{{Code: code, Status: Skipped, Subject: subject, Message: "The settings name nobody to try it with ([doctor] port25_targets)."}}
	}
	client := s.TrialClient(doctor.Guarded)
	reached := make(chan string, len(targets))
	failed := make(chan error, len(targets))
	for _, target := range targets {
		host, port, _ := net.SplitHostPort(target) // the settings were validated
		number, _ := strconv.Atoi(port)
		go func() {
			if err := client.TryRelay(ctx, deliver.Relay{Host: host, Port: number, TLS: "none"}); err != nil {
				failed <- err
				return
			}
			reached <- target
		}()
	}
	var reasons []string
	for range targets {
		select {
		case target := <-reached:
			return okResult(code, subject, "%s was reached.", target)
		case err := <-failed:
			reasons = append(reasons, err.Error())
		}
	}
	return badResult(code, Error, subject, "No other mail server can be reached: "+strings.Join(reasons, "; ")+".",
		"Ask the provider of this host to open port 25 outwards, or send through a [[relay]], in mailstead.toml or in the settings of the dashboard.")
}

// checkBlocklists looks up this host's addresses in block lists that receivers use.
func (s *Service) checkBlocklists(ctx context.Context) (out []Check) {
	const code, subject = "blocklist", "lists of senders of spam"
	lists := s.Settings().Doctor.Blocklists
	switch skip := s.skipUnlessPublic(code); {
	case skip != nil:
		return skip
	case len(lists) == 0:
		return []Check{{Code: code, Status: Skipped, Subject: subject, Message: "The settings name no list ([doctor] blocklists)."}}
	}
	for _, zone := range lists {
		for _, ip := range s.SendingIPs() {
			listed, yes, err := auth.InDNSBL(ctx, s.Resolver, zone, ip)
			switch {
			case yes:
				reason := ""
				if listed.Reason != "" {
					reason = " It says: " + listed.Reason
				}
				out = append(out, badResult(code, Error, ip.String(), fmt.Sprintf("It is listed in %s, so many receivers refuse mail from it.%s", zone, reason),
					"Find out at the list's site why, mend the cause, and ask the list to remove the address.")...)
			case err != nil:
				out = append(out, badResult(code, Warning, zone, fmt.Sprintf("It is not known whether %s is listed: %v.", ip, err),
					"Have a resolver of your own on this host (resolver = \"127.0.0.1:53\"), or leave the list out of [doctor] blocklists.")...)
			}
		}
	}
	if out == nil {
		return okResult(code, subject, "No address of this host is in %s.", strings.Join(lists, ", "))
	}
	return out
}

// checkRelays connects to every relay and logs in.
func (s *Service) checkRelays(ctx context.Context) (out []Check) {
	const code = "relay"
	if skip := s.skipUnlessPublic(code); skip != nil {
		return skip
	}
	relays := s.Settings().Relays
	if len(relays) == 0 {
		return []Check{{Code: code, Status: Skipped, Subject: "[[relay]]", Message: "The settings name no relay."}}
	}
	for _, r := range relays {
		err := s.TrialClient(r.Guarded).TryRelay(ctx, r.Hop())
		if err != nil {
			out = append(out, badResult(code, Error, r.Name, fmt.Sprintf("It does not take mail from this host: %v.", err),
				fmt.Sprintf("Compare host, port, tls, username and password of the relay %q in the settings with what its provider shows.", r.Name))...)
			continue
		}
		out = append(out, okResult(code, r.Name, "It can be reached and takes the login.")...)
	}
	return out
}

// skippedCheck returns a check of a feature that this installation does not have: it is always
// skipped.
func skippedCheck(code, message string) func(context.Context) []Check {
	return func(context.Context) []Check {
		return []Check{{Code: code, Status: Skipped, Subject: "[" + code + "]", Message: message}}
	}
}
