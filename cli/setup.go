package cli

import (
	"bufio"
	"context"
	"encoding/hex"
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
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/listen"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/internal/lookup"
	"github.com/mailstead/mailstead/mail/spf"
	"github.com/mailstead/mailstead/packaging"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/health"
	"github.com/mailstead/mailstead/store"
)

// setupResult is the result of the command setup, with the steps that the operator has to do.
type setupResult struct {
	Hostname      string        `json:"hostname"`
	Data          string        `json:"data"`   // the absolute path of the data directory
	Config        string        `json:"config"` // the path of the settings file
	OwnerEmail    string        `json:"owner_email"`
	OwnerPassword string        `json:"owner_password,omitempty"` // shown only once
	Token         string        `json:"token,omitempty"`          // shown only once
	PublicIPs     []netip.Addr  `json:"public_ips"`
	Records       []setupRecord `json:"records"` // for the domain of the hostname
	// Glue records for the registrar, if this server is to serve the nameservers' domain.
	Glue     []setupRecord  `json:"glue"`
	PTR      []setupPTR     `json:"ptr"`
	Ports    []setupPort    `json:"ports"`
	Firewall []string       `json:"firewall"` // commands for ufw
	Unit     string         `json:"unit"`     // the text of a systemd unit
	Checks   []health.Check `json:"checks"`

	userMissing bool // whether the user of the systemd unit does not exist yet
}

type setupRecord struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Value   string `json:"value"`
	Purpose string `json:"purpose,omitempty"`
}

type setupPTR struct {
	IP   netip.Addr `json:"ip"`
	Name string     `json:"name"`
}

type setupPort struct {
	Name    string `json:"name"`
	Port    int    `json:"port"`
	Free    bool   `json:"free"`
	Message string `json:"message"`
}

func (p *Program) setupCommand() *cli.Command {
	own := []cli.Flag{
		&cli.StringFlag{Name: "email", Usage: "the owner's address, which the certificate authority gets too", EnvVars: []string{"MAILSTEAD_EMAIL"}},
		&cli.StringFlag{Name: "owner-password", Usage: "the owner's password; generated if left out", EnvVars: []string{"MAILSTEAD_OWNER_PASSWORD"}},
		&cli.StringFlag{Name: "tls", Usage: "where the certificate comes from: acme, files (--tls-cert and --tls-key), or proxy (a proxy on this host serves HTTPS)"},
		&cli.StringFlag{Name: "unit", Usage: "write the systemd unit to this file"},
		&cli.BoolFlag{Name: "yes", Usage: "ask nothing"},
		jsonFlag(),
	}
	return p.command("setup", "ask what is needed, write the settings and the store, and say which records and rights the host needs", "", func(c *cli.Context, e *env) error {
		if err := noArguments(c); err != nil {
			return err
		}
		return runSetup(c, e)
	}, append(own, config.Flags()...)...)
}

// runSetup creates an installation, or changes the settings of an existing one. It asks for missing
// settings, writes the settings file and the store, and prints the remaining steps, such as DNS
// records. Each answer is set as the flag of the setting, so there is no options struct.
func runSetup(c *cli.Context, e *env) error {
	dir, err := filepath.Abs(e.dir)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, settingsFile)
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	old, err := config.Merge(file, string(text), c)
	if err != nil {
		return err
	}
	_, err = os.Stat(filepath.Join(dir, store.DatabaseFile))
	made := err == nil
	ask := newQuestioner(c)
	if err := askForSettings(c, ask, old, made); err != nil {
		return err
	}
	if email := c.String("email"); email != "" {
		if _, err := core.NormalizeEmail("email", email); err != nil {
			return flagError(err, map[string]string{"email": "email"})
		}
		// The address is also the contact of the ACME account, which has rules of its own.
		if err := config.CheckContact(email); err != nil {
			return config.Mistake(fmt.Errorf("invalid --email: %w", err))
		}
	}
	if err := setTLS(c, ask, string(text)); err != nil {
		return err
	}
	if _, err := config.Merge(file, string(text), c); err != nil {
		// Check the answers before they are written to the settings file. So an error names the
		// flag, not a line of the file.
		return err
	}
	edited := config.Edit(string(text), c)
	s, err := config.Merge(file, edited, c)
	if err != nil {
		return err
	}
	if !made { // the store will have no settings
		if _, _, err := s.Join(nil); err != nil {
			return err
		}
	}
	ips, err := findPublicIPs(c, ask, s)
	if err != nil {
		return err
	}
	edited = config.Edit(edited, c)
	if !made {
		edited = config.AddSendingLimits(edited)
	}
	s, err = config.Merge(file, edited, c)
	if err != nil {
		return err
	}
	if !made {
		if err := operator.RequireStore(dir, s, true); err != nil {
			return err
		}
	}
	if _, err := listen.NewCertificates(s, s.Hostname.String()); err != nil {
		return config.Mistake(fmt.Errorf("load --tls-cert and --tls-key: %w", err))
	}
	if _, err := config.RootCAs(s.CAFile); err != nil {
		return config.Mistake(err)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	out := &setupResult{Hostname: s.Hostname.String(), Data: dir, Config: file, PublicIPs: ips, Unit: packaging.Unit(dir, program)}
	serverRuns := false
	if conn, err := net.Dial("unix", filepath.Join(dir, operator.SocketName)); err == nil {
		serverRuns = true
		conn.Close()
	}
	out.Ports = checkPorts(s, serverRuns)
	out.addRecords(s)

	// All checks have passed. Files that are created from here on are removed if a later step
	// fails. The owner is created last, because the password and token are shown only once.
	unit, err := stageFile(c.String("unit"), out.Unit, 0o644)
	if err != nil {
		return config.Mistake(fmt.Errorf("write the unit file of --unit: %w", err))
	}
	defer unit.discard()
	place, err := openDataDir(dir)
	if err != nil {
		return err
	}
	writeFiles := func() (err error) {
		if edited != string(text) {
			if err := place.writeSettings(edited); err != nil {
				return err
			}
		}
		out.userMissing, err = place.chownToServer()
		if err != nil {
			return err
		}
		return unit.commit()
	}
	if !serverRuns {
		err = out.createStore(c, e, ask, s, writeFiles)
	} else if err = out.askServer(c.Context, e); err == nil {
		err = writeFiles()
	}
	if err != nil && out.Token == "" {
		return errors.Join(err, place.undo())
	}
	return errors.Join(e.print(out, out.text(c.String("unit"), serverRuns)), err)
}

// A questioner asks for missing flags on the terminal. It asks nothing without a terminal or with
// --yes.
type questioner struct {
	c  *cli.Context
	in *bufio.Reader // standard input; nil to ask nothing
}

func newQuestioner(c *cli.Context) *questioner {
	q := &questioner{c: c}
	info, err := os.Stdin.Stat()
	null, _ := os.Stat(os.DevNull)
	if err == nil && info.Mode()&os.ModeCharDevice != 0 && !os.SameFile(info, null) && !c.Bool("yes") {
		q.in = bufio.NewReader(os.Stdin)
	}
	return q
}

// askFlag asks a question and sets a flag to the answer, unless the flag is already set. An empty
// answer means defaultAnswer. It returns an error that names the flag if there is no answer and no
// default.
func (q *questioner) askFlag(name, question, defaultAnswer string) error {
	if q.c.String(name) != "" {
		return nil
	}
	if q.in == nil {
		if defaultAnswer == "" {
			return config.Mistake(fmt.Errorf("--%s is required: %s", name, strings.ToLower(question[:1])+strings.TrimSuffix(question[1:], ":")))
		}
		return q.c.Set(name, defaultAnswer)
	}
	for {
		if defaultAnswer != "" {
			fmt.Fprintf(q.c.App.ErrWriter, "%s [%s] ", question, defaultAnswer)
		} else {
			fmt.Fprintf(q.c.App.ErrWriter, "%s ", question)
		}
		line, err := q.in.ReadString('\n')
		answer := strings.TrimSpace(line)
		if answer == "" {
			answer = defaultAnswer
		}
		if answer != "" {
			return q.c.Set(name, answer)
		}
		if err != nil {
			return config.Mistake(fmt.Errorf("--%s is required: %s", name, strings.ToLower(question[:1])+strings.TrimSuffix(question[1:], ":")))
		}
	}
}

// askForSettings asks for the hostname and the owner's email address if they are missing.
func askForSettings(c *cli.Context, ask *questioner, old *config.Settings, storeExists bool) error {
	host := ""
	if !old.Sandbox() {
		host = old.Hostname.String()
	} else if name, err := os.Hostname(); err == nil && strings.Count(name, ".") > 1 {
		host = name
	}
	if old.Sandbox() || c.IsSet("hostname") || ask.in != nil {
		if ask.in == nil && old.Sandbox() {
			host = "" // do not choose silently: the name appears in every message
		}
		if err := ask.askFlag("hostname", "The public name of this mail host, such as mail.example.com:", host); err != nil {
			return err
		}
	}
	if storeExists && c.String("email") == "" {
		return nil // the store has an owner
	}
	return ask.askFlag("email", emailQuestion, "")
}

const emailQuestion = "The email address of its owner, who gets alerts of this host:"

// setTLS asks for the source of certificates and sets the flags that depend on it. settingsText is
// the text of the settings file.
func setTLS(c *cli.Context, ask *questioner, settingsText string) error {
	if settingsText == "" && c.String("tls-cert") == "" {
		if err := ask.askFlag("tls", "Certificates: acme (Let's Encrypt), files, or proxy (a web proxy on this host serves HTTPS):", "acme"); err != nil {
			return err
		}
	}
	set := func(flag, value string) error {
		if c.IsSet(flag) {
			return nil
		}
		return c.Set(flag, value)
	}
	switch c.String("tls") {
	case "":
		return nil
	case "acme":
		if c.String("email") == "" {
			return nil
		}
		return set("acme-email", c.String("email"))
	case "files":
		return errors.Join(ask.askFlag("tls-cert", "The file of the certificate and its chain (PEM):", ""), ask.askFlag("tls-key", "The file of its key (PEM):", ""))
	case "proxy":
		return errors.Join(set("http", "127.0.0.1:8080"), set("http-tls", "off"), set("trusted-proxy", "127.0.0.1"))
	}
	return config.Mistake(fmt.Errorf("unknown --tls %q; use acme, files or proxy", c.String("tls")))
}

// findPublicIPs returns the public addresses of this host, from the settings or the network
// interfaces. If there are none, it asks for them, with the addresses of the hostname as the
// default, and sets --public-ip to the answer.
func findPublicIPs(c *cli.Context, ask *questioner, s *config.Settings) ([]netip.Addr, error) {
	ips, err := s.PublicIPs()
	if err == nil {
		return ips, nil
	}
	defaultAnswer := ""
	var resolver lookup.Options
	if s.Resolver.On() {
		resolver.Servers = []string{s.Resolver.String()}
	}
	ctx, cancel := context.WithTimeout(c.Context, 10*time.Second)
	defer cancel()
	if found, failed := lookup.New(resolver).LookupNetIP(ctx, "ip", s.Hostname.String()+"."); failed == nil {
		var texts []string
		for _, ip := range found {
			texts = append(texts, ip.Unmap().String())
		}
		slices.Sort(texts)
		defaultAnswer = strings.Join(texts, ",")
	}
	if ask.in == nil && defaultAnswer == "" {
		return nil, err
	}
	if err := ask.askFlag("public-ip", "The public address of this host, as others see it:", defaultAnswer); err != nil {
		return nil, err
	}
	for one := range strings.SplitSeq(strings.Join(c.StringSlice("public-ip"), ","), ",") {
		ip, err := netip.ParseAddr(strings.TrimSpace(one))
		if err != nil {
			return nil, config.Mistake(fmt.Errorf("--public-ip has %q, which is not an IP address", one))
		}
		ips = append(ips, ip)
	}
	return ips, nil
}

// askServer asks the running server for the owner and for the results of the checks.
func (d *setupResult) askServer(ctx context.Context, e *env) error {
	list, report := new(core.List[accounts.AccountRow]), new(health.Report)
	if err := e.askServer(ctx, operator.AccountsPath, struct{}{}, list); err != nil {
		return err
	}
	if len(list.Data) > 0 {
		d.OwnerEmail = list.Data[0].OwnerEmail
	}
	err := e.askServer(ctx, operator.DoctorPath, struct{}{}, report)
	d.Checks = report.Checks
	return err
}

// createStore creates or opens the store, runs the checks and calls writeFiles. If there is no
// owner, it creates one last, because the password and token are shown only once.
func (d *setupResult) createStore(c *cli.Context, e *env, ask *questioner, s *config.Settings, writeFiles func() error) error {
	return e.Open(d.Data, s, true, func(o *operator.Operator) error {
		list, err := o.Service.Accounts.ListAccounts(c.Context, struct{}{})
		if err != nil {
			return flagError(err, nil)
		}
		if len(list.Data) > 0 {
			d.OwnerEmail = list.Data[0].OwnerEmail
		} else if err := ask.askFlag("email", emailQuestion, ""); err != nil {
			return err // the store has no owner because an earlier setup was interrupted
		}
		o.Service.Health.Host = new(health.Host)
		report, err := o.Service.Health.Doctor(c.Context, struct{}{})
		if err != nil {
			return err
		}
		for _, check := range report.Checks {
			if check.Code != "ports" { // this check needs a running server
				d.Checks = append(d.Checks, check)
			}
		}
		if err := writeFiles(); err != nil || len(list.Data) > 0 {
			return err
		}
		made, err := o.Service.Accounts.CreateAccount(c.Context, accounts.NewAccount{OwnerEmail: c.String("email"), OwnerPassword: c.String("owner-password"), First: true})
		if err != nil {
			return flagError(err, map[string]string{"owner_email": "email", "owner_password": "owner-password"})
		}
		d.OwnerEmail, d.OwnerPassword, d.Token = made.OwnerEmail, made.OwnerPassword, made.Token
		return nil
	})
}

// addRecords adds the DNS, glue and PTR records that the operator has to set, and the commands that
// open the firewall.
func (d *setupResult) addRecords(s *config.Settings) {
	service := s.Service()
	elsewhere := service.OtherNameservers()
	d.Records, d.Glue, d.PTR = []setupRecord{}, []setupRecord{}, []setupPTR{}
	kind := func(ip netip.Addr) string {
		if ip.Is4() {
			return "A"
		}
		return "AAAA"
	}
	for _, ip := range d.PublicIPs {
		d.Records = append(d.Records, setupRecord{d.Hostname, kind(ip), ip.String(), "others find this host by its name"})
		d.PTR = append(d.PTR, setupPTR{ip, d.Hostname})
	}
	d.Records = append(d.Records, setupRecord{d.Hostname, "TXT", spf.ForHost(service.Sending.Addresses()), "notices that this host sends in its own name pass SPF"})
	if s.DNS.On() {
		for _, name := range service.Nameservers {
			at := elsewhere[name]
			if at == nil {
				at = d.PublicIPs
			}
			for _, ip := range at {
				d.Records = append(d.Records, setupRecord{name, kind(ip), ip.String(), "domains can have their DNS here"})
				d.Glue = append(d.Glue, setupRecord{Name: name, Type: kind(ip), Value: ip.String()})
			}
		}
	}
	var tcp []string
	for _, port := range d.Ports {
		if at := strconv.Itoa(port.Port); !slices.Contains(tcp, at) {
			tcp = append(tcp, at)
		}
	}
	d.Firewall = []string{}
	if len(tcp) > 0 {
		d.Firewall = append(d.Firewall, "ufw allow proto tcp to any port "+strings.Join(tcp, ","))
	}
	if s.DNS.On() {
		d.Firewall = append(d.Firewall, "ufw allow proto udp to any port "+portOf(s.DNS))
	}
	if s.Outbound.String() == "" || s.Outbound.String() == "direct" {
		d.Firewall = append(d.Firewall, "ufw allow out proto tcp to any port "+strconv.Itoa(int(s.MXPort)))
	}
}

func portOf(at config.Address) string {
	_, port, _ := net.SplitHostPort(at.String()) // valid, because the settings were checked
	return port
}

// checkPorts tries to listen on every address in the settings, and reports which ports are free.
func checkPorts(s *config.Settings, serverRuns bool) []setupPort {
	out := []setupPort{}
	for _, one := range []struct {
		name string
		at   config.Address
	}{
		{"smtp", s.SMTP}, {"submission", s.Submission}, {"submissions", s.Submissions}, {"imap", s.IMAP}, {"imaps", s.IMAPS},
		{"http", s.HTTP}, {"http_tls", s.HTTPTLS}, {"dns", s.DNS},
	} {
		if !one.at.On() {
			continue
		}
		p := setupPort{Name: one.name}
		p.Port, _ = strconv.Atoi(portOf(one.at))
		ln, err := net.Listen("tcp", one.at.String())
		if err == nil {
			ln.Close()
			if one.name == "dns" {
				var packets net.PacketConn
				packets, err = net.ListenPacket("udp", one.at.String())
				if err == nil {
					packets.Close()
				}
			}
		}
		forbidden := errors.Is(err, syscall.EACCES)
		taken := errors.Is(err, syscall.EADDRINUSE) || forbidden && isPortTaken(one.at.String(), one.name == "dns")
		switch {
		case err == nil:
			p.Free, p.Message = true, "It is free."
		case taken && serverRuns:
			p.Message = "Mailstead has it already."
		case taken:
			p.Message = fmt.Sprintf("Another program has it: `ss -lntup 'sport = :%d'` names it. Stop that program, or set %s to another port, or to off.", p.Port, one.name)
		case forbidden:
			p.Free, p.Message = true, "This user may not open it; the systemd unit has the right to (CAP_NET_BIND_SERVICE)."
		default:
			p.Message = fmt.Sprintf("It cannot be opened: %v.", err)
		}
		out = append(out, p)
	}
	return out
}

// isPortTaken reports whether a process listens on the TCP address, or, if udp is set, on the UDP
// address. On Linux, users without the right to listen there can see this too.
func isPortTaken(address string, udp bool) bool {
	want, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return false
	}
	states := map[string]string{"tcp": "0A", "tcp6": "0A"} // TCP_LISTEN
	if udp {
		states["udp"], states["udp6"] = "07", "07"
	}
	for kind, state := range states {
		text, _ := os.ReadFile("/proc/net/" + kind) // the file does not exist on other systems
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line) // columns: number, local address, remote address, state, ...
			if len(fields) < 4 || fields[3] != state {
				continue
			}
			ip, port := parseProcAddress(fields[1])
			if port == want.Port && (ip.IsUnspecified() || want.IP == nil || want.IP.IsUnspecified() || ip.Equal(want.IP)) {
				return true
			}
		}
	}
	return false
}

// parseProcAddress parses an address from a file in Linux's /proc/net: the IP address in
// hexadecimal, with the bytes of each 32-bit word in little-endian order, ":", and the port in
// hexadecimal.
func parseProcAddress(text string) (ip net.IP, port int) {
	host, number, _ := strings.Cut(text, ":")
	ip, _ = hex.DecodeString(host)
	for word := range slices.Chunk(ip, 4) {
		slices.Reverse(word)
	}
	n, _ := strconv.ParseUint(number, 16, 16)
	return ip, int(n)
}

// hasPackagedUnit reports whether a package has installed a systemd unit for the data directory
// dir.
func hasPackagedUnit(dir string) bool {
	_, err := os.Stat("/usr/lib/systemd/system/mailstead.service")
	return err == nil && dir == packaging.DataDir
}

// unitName returns the argument of `systemctl enable` for a unit file: its name if the file is in a
// directory that systemd searches, else its path.
func unitName(file string) string {
	path, err := filepath.Abs(file)
	if err != nil {
		return file
	}
	switch filepath.Dir(path) {
	case "/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system":
		return strings.TrimSuffix(filepath.Base(path), ".service")
	}
	return path
}

// text returns the result and the remaining steps as text for people.
func (d *setupResult) text(unit string, serverRuns bool) string {
	var w strings.Builder
	fmt.Fprintf(&w, "Mailstead is set up in %s for %s.\n", d.Data, d.Hostname)
	if d.Token != "" {
		fmt.Fprintf(&w, "\nShown once:\n\n  owner     %s\n  password  %s\n  token     %s\n", d.OwnerEmail, d.OwnerPassword, d.Token)
	}
	fmt.Fprint(&w, "\n1. Set these records where the DNS of your hostname's domain is kept:\n\n")
	for _, r := range d.Records {
		fmt.Fprintf(&w, "  %-28s %-5s %-24s (%s)\n", r.Name+".", r.Type, r.Value, r.Purpose)
	}
	if len(d.Glue) > 0 {
		fmt.Fprint(&w, "\n   If that domain is to have its DNS here too, set these at its registrar as glue:\n\n")
		for _, r := range d.Glue {
			fmt.Fprintf(&w, "  %-28s %s\n", r.Name+".", r.Value)
		}
	}
	fmt.Fprint(&w, "\n2. Have the provider of this host set its reverse names (PTR):\n\n")
	for _, r := range d.PTR {
		fmt.Fprintf(&w, "  %-28s %s\n", r.IP, r.Name)
	}
	if len(d.Firewall) > 0 {
		fmt.Fprint(&w, "\n3. Open the firewall, for example:\n\n")
		for _, line := range d.Firewall {
			fmt.Fprintf(&w, "  %s\n", line)
		}
	}
	fmt.Fprint(&w, "\n4. Start it:\n\n")
	switch {
	case serverRuns:
		fmt.Fprint(&w, "  systemctl restart mailstead   # it runs with the settings before\n")
	case unit != "":
		if d.userMissing {
			fmt.Fprintf(&w, "  useradd --system --user-group --no-create-home --home-dir %[1]s --shell /usr/sbin/nologin %[2]s\n  chown -R %[2]s: %[1]s\n", health.ShellWord(d.Data), packaging.User)
		}
		fmt.Fprintf(&w, "  systemctl daemon-reload && systemctl enable --now %s\n", health.ShellWord(unitName(unit)))
	case hasPackagedUnit(d.Data):
		fmt.Fprint(&w, "  systemctl enable --now mailstead.socket mailstead.service\n")
	default:
		fmt.Fprintf(&w, "  mailstead serve --data %s\n\n   or as a service: run setup again with --unit /etc/systemd/system/mailstead.service\n", health.ShellWord(d.Data))
	}
	fmt.Fprintf(&w, "\n5. See whether all is well: mailstead doctor --data %s\n", health.ShellWord(d.Data))
	for _, p := range d.Ports {
		if !p.Free && !serverRuns {
			fmt.Fprintf(&w, "\nPort %d (%s): %s\n", p.Port, p.Name, p.Message)
		}
	}
	var wrong []health.Check
	for _, check := range d.Checks {
		if check.Mend != nil {
			wrong = append(wrong, check)
		}
	}
	if len(wrong) > 0 {
		fmt.Fprint(&w, "\nWhat the checks find now, most of it until the records above are there:\n\n"+checksText(wrong))
	}
	return w.String()
}
