package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/listen"
	"github.com/mailstead/mailstead/handlers/operator"
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
	Notes    []string       `json:"notes"` // about the user of the service

	host        setupHost
	userMissing bool     // whether the user of the systemd unit does not exist
	openPorts   []string // for a firewall, such as 25/tcp
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

	mend string // the end of the message that says what to do; "" if nothing is wrong
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
	out := &setupResult{Hostname: s.Hostname.String(), Data: dir, Config: file, PublicIPs: ips, Unit: packaging.Unit(dir, program), Notes: []string{}, host: newSetupHost(program)}
	serverRuns := e.serverRuns()
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
		if note := out.makeUser(c.String("unit")); note != "" {
			out.Notes = append(out.Notes, note)
		}
		out.userMissing, err = place.giveToServer()
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
	ctx, cancel := context.WithTimeout(c.Context, 10*time.Second)
	defer cancel()
	var texts []string
	for _, ip := range namedIPs(ctx, s) {
		texts = append(texts, ip.String())
	}
	slices.Sort(texts)
	defaultAnswer := strings.Join(texts, ",")
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
	return e.open(d.Data, s, true, func(o *operator.Operator) error {
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
	d.Firewall, d.openPorts = []string{}, nil
	for _, port := range tcp {
		d.openPorts = append(d.openPorts, port+"/tcp")
	}
	if s.DNS.On() {
		d.openPorts = append(d.openPorts, portOf(s.DNS)+"/udp")
	}
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
	if isSystemUnit(path) {
		return strings.TrimSuffix(filepath.Base(path), ".service")
	}
	return path
}

// isSystemUnit reports whether a unit file is in a directory that systemd searches.
func isSystemUnit(file string) bool {
	path, err := filepath.Abs(file)
	return err == nil && slices.Contains([]string{"/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}, filepath.Dir(path))
}

// text returns the result and the remaining steps as text for people. Every command in it can be
// run as it stands.
func (d *setupResult) text(unit string, serverRuns bool) string {
	var w strings.Builder
	h := d.host
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
		w.WriteString(d.firewallText())
	}
	fmt.Fprint(&w, "\n4. Start it:\n\n")
	switch {
	case serverRuns && h.systemd:
		fmt.Fprintf(&w, "  %ssystemctl restart mailstead   # it runs with the settings before\n", h.sudo)
	case serverRuns:
		fmt.Fprintf(&w, "  Stop the server and start it again: it runs with the settings before.\n")
	case unit != "":
		if d.userMissing {
			for _, line := range userCommands(d.Data) {
				fmt.Fprintf(&w, "  %s%s\n", h.sudo, line)
			}
		}
		fmt.Fprintf(&w, "  %[1]ssystemctl daemon-reload && %[1]ssystemctl enable --now %[2]s\n", h.sudo, health.ShellWord(unitName(unit)))
	case hasPackagedUnit(d.Data):
		fmt.Fprintf(&w, "  %ssystemctl enable --now mailstead.socket mailstead.service\n", h.sudo)
	default:
		if d.needsRights() {
			fmt.Fprintf(&w, "  sudo setcap cap_net_bind_service=+ep %s   # lets it open ports below 1024\n", health.ShellWord(h.path))
		}
		fmt.Fprintf(&w, "  %s serve --data %s\n", h.program, health.ShellWord(d.Data))
		if h.systemd {
			fmt.Fprintf(&w, "\n   or as a service: %s%s setup --data %s --unit /etc/systemd/system/mailstead.service\n", h.sudo, h.program, health.ShellWord(d.Data))
		}
	}
	fmt.Fprintf(&w, "\n5. See whether all is well: %s doctor --data %s\n", h.program, health.ShellWord(d.Data))
	for _, p := range d.Ports {
		if !p.Free && !serverRuns {
			fmt.Fprintf(&w, "\nPort %d (%s): %s\n", p.Port, p.Name, p.Message)
		}
	}
	for _, note := range d.Notes {
		fmt.Fprintf(&w, "\n%s\n", note)
	}
	var wrong []health.Check
	for _, check := range d.Checks {
		if check.Mend != nil {
			wrong = append(wrong, check)
		}
	}
	if len(wrong) > 0 {
		fmt.Fprint(&w, "\nWhat the checks find now, most of it until the records above are there:\n\n"+checksText(wrong, new(printer)))
	}
	return w.String()
}

// firewallText returns how to open the ports of the server, with the commands of the firewall that
// this host has.
func (d *setupResult) firewallText() string {
	text := "\n3. Open the firewall"
	switch {
	case d.host.firewall == "ufw":
		text += ":\n\n"
		for _, line := range d.Firewall {
			text += "  " + d.host.sudo + line + "\n"
		}
	case d.host.firewall == "firewall-cmd":
		text += ":\n\n"
		for _, port := range d.openPorts {
			text += "  " + d.host.sudo + "firewall-cmd --permanent --add-port=" + port + "\n"
		}
		text += "  " + d.host.sudo + "firewall-cmd --reload\n"
	default:
		text += ", if there is one here or before this host, for what comes to these ports: " + strings.Join(d.openPorts, ", ") + ".\n"
	}
	return text
}

// needsRights reports whether this user may not open a port of the server.
func (d *setupResult) needsRights() bool {
	return d.host.sudo != "" && d.host.systemLinux && slices.ContainsFunc(d.Ports, func(p setupPort) bool { return p.Port < 1024 })
}

// A setupHost is what setup must know of this host to print commands that work there.
type setupHost struct {
	program     string // the word that runs this program in a shell
	path        string // of this program
	sudo        string // "sudo " for commands that need root, "" if this user is root
	systemd     bool   // whether systemd runs
	systemLinux bool
	firewall    string // the program that changes the firewall: ufw or firewall-cmd; "" if there is neither
}

func newSetupHost(path string) setupHost {
	h := setupHost{program: health.ShellWord(path), path: path, systemLinux: runtime.GOOS == "linux"}
	if found, err := exec.LookPath("mailstead"); err == nil && sameFile(found, path) {
		h.program = "mailstead"
	}
	if os.Geteuid() != 0 {
		h.sudo = "sudo "
	}
	_, err := os.Stat("/run/systemd/system")
	h.systemd = err == nil
	for _, name := range []string{"ufw", "firewall-cmd"} {
		if _, err := exec.LookPath(name); err == nil && h.firewall == "" {
			h.firewall = name
		}
	}
	return h
}

func sameFile(a, b string) bool {
	one, errOne := os.Stat(a)
	other, errOther := os.Stat(b)
	return errOne == nil && errOther == nil && os.SameFile(one, other)
}

// userCommands are the commands that make the user of the systemd unit, and give it the data
// directory.
func userCommands(dir string) []string {
	return []string{
		fmt.Sprintf("useradd --system --user-group --no-create-home --home-dir %s --shell /usr/sbin/nologin %s", health.ShellWord(dir), packaging.User),
		fmt.Sprintf("chown -R %s: %s", packaging.User, health.ShellWord(dir)),
	}
}

// makeUser makes the user of the systemd unit, if this process is root and the unit is one that
// systemd reads. It returns a note about what it did or will not do, or "".
func (d *setupResult) makeUser(unit string) string {
	if os.Geteuid() != 0 {
		if unit != "" || hasPackagedUnit(d.Data) {
			return fmt.Sprintf("setup does not run as root, so it makes no user %s, and %s stays with you.", packaging.User, d.Data)
		}
		return ""
	}
	if _, err := user.Lookup(packaging.User); err == nil {
		return ""
	}
	if !hasPackagedUnit(d.Data) && (unit == "" || !isSystemUnit(unit)) {
		return fmt.Sprintf("setup makes no user %s, since it installs no service: the directory stays with its owner, and a server that root starts runs as root.", packaging.User)
	}
	words := strings.Fields(userCommands("/")[0])
	words[slices.Index(words, "/")] = d.Data
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		return fmt.Sprintf("The user %s could not be made: %v. %s", packaging.User, err, strings.TrimSpace(string(out)))
	}
	return fmt.Sprintf("setup has made the user %s, who owns %s and runs the service.", packaging.User, d.Data)
}
