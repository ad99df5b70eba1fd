package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/dnsprov/ca"
	"github.com/mailstead/mailstead/service"
)

// settings is everything that can be set: each plain field is a flag, an environment variable and a
// key of the file, under the one name in its tag.
type settings struct {
	Hostname    hostName `toml:"hostname" usage:"this host's public name; turns production mode on"`
	HTTP        address  `toml:"http" usage:"where HTTP listens: ADDR, or off"`
	HTTPTLS     address  `toml:"http_tls" usage:"where HTTPS listens"`
	SMTP        address  `toml:"smtp" usage:"where SMTP listens for mail from other servers"`
	Submission  address  `toml:"submission" usage:"where SMTP listens for mail from our users, with STARTTLS"`
	Submissions address  `toml:"submissions" usage:"the same with TLS from the start"`
	IMAP        address  `toml:"imap" usage:"where IMAP listens, with STARTTLS"`
	IMAPS       address  `toml:"imaps" usage:"the same with TLS from the start"`
	DNS         address  `toml:"-" flag:"dns" usage:"where DNS listens, over UDP and TCP"`
	TLSCert     string   `toml:"tls_cert" usage:"certificate chain of this host's name, a PEM file; without it one is got by ACME"`
	TLSKey      string   `toml:"tls_key" usage:"the certificate's key, a PEM file"`
	Directory   acmeURL  `toml:"acme_directory" usage:"directory URL of the certificate authority (ACME), or off; Let's Encrypt in production"`
	ACMEEmail   contact  `toml:"acme_email" usage:"where the certificate authority may write to"`
	EABKeyID    string   `toml:"acme_eab_kid"`
	EABKey      eabKey   `toml:"acme_eab_hmac"`
	PublicIP    ipList   `toml:"public_ip" usage:"an address that DNS records point to; may be repeated"`
	Proxies     netList  `toml:"trusted_proxy" usage:"a proxy in front whose X-Forwarded-For and X-Forwarded-Proto are believed, by its address or CIDR; may be repeated"`
	ReadyFile   string   `toml:"ready_file" usage:"a file to write once every listener accepts"`
	Outbound    outbound `toml:"outbound" usage:"where mail to others goes: capture, direct or relay"`
	Resolver    address  `toml:"resolver" usage:"the DNS resolver for every look-up, instead of the system's"`
	MXPort      port     `toml:"mx_port" usage:"the port for direct delivery"`
	CAFile      string   `toml:"ca_file" usage:"extra certificate authorities for outgoing TLS, a PEM file"`
	Private     toggle   `toml:"allow_private_destinations" usage:"what tenants name may be private and loopback addresses"`
	LogFormat   logForm  `toml:"log_format" usage:"text or json"`
	LogLevel    logLevel `toml:"log_level" usage:"debug, info, warn or error"`

	Relay     []relaySettings   `toml:"relay"`
	Registrar registrarSettings `toml:"registrar"`
	Edge      edgeSettings      `toml:"cloudflare"`
	RDAP      rdapSettings      `toml:"rdap"`
	Limits    limitSettings     `toml:"limits"`
	Spam      spamSettings      `toml:"spam"`
	Zones     dnsSettings       `toml:"-"`
}

type relaySettings struct {
	Name          string    `toml:"name"`
	Kind          relayKind `toml:"kind"`
	Host          string    `toml:"host"`
	Port          port      `toml:"port"`
	TLS           relayTLS  `toml:"tls"`
	Username      string    `toml:"username"`
	Password      string    `toml:"password"`
	PasswordFile  string    `toml:"password_file"`
	Region        string    `toml:"region"`
	TopicARN      string    `toml:"topic_arn"`
	WebhookSecret string    `toml:"webhook_secret"`
	IDPattern     pattern   `toml:"id_pattern"`
	IDTemplate    string    `toml:"id_template"`
	DKIM          *bool     `toml:"dkim"`
	ReturnPath    pathKind  `toml:"return_path"`
	SNSURL        string    `toml:"sns_url"`

	ControlHeaders []string `toml:"control_headers"`
}

// rdapSettings is the table [rdap].
type rdapSettings struct {
	BootstrapURL bootstrapURL `toml:"bootstrap_url"`
}

// dnsSettings is the table [dns]; `listen` in it is what `dns = ADDR` is without the table.
type dnsSettings struct {
	Listen        address             `toml:"listen"`
	CheckInterval duration            `toml:"check_interval"`
	Secondaries   []secondarySettings `toml:"secondaries"`
	Catalog       dnsName             `toml:"catalog"`
	TrustResolver bool                `toml:"trust_resolver"`
}

type limitSettings struct {
	Plan               plan  `toml:"plan"`
	Domains            count `toml:"domains"`
	TeamUsers          count `toml:"team_users"`
	Mailboxes          count `toml:"mailboxes"`
	MailboxesPerDomain count `toml:"mailboxes_per_domain"`
	RatePerMinute      count `toml:"rate_per_minute"`
	BurstPerMinute     count `toml:"burst_per_minute"`
}

// sandbox and production are the settings of the two ways to run, before file, environment and
// flags.
func sandbox() settings {
	off := address{"off"}
	return settings{
		HTTP: address{"127.0.0.1:8080"}, HTTPTLS: off, SMTP: address{"127.0.0.1:2525"}, Submission: address{"127.0.0.1:2587"},
		Submissions: off, IMAP: address{"127.0.0.1:2143"}, IMAPS: off, DNS: address{"127.0.0.1:2053"},
		MXPort: 25, LogFormat: logForm{"text"}, LogLevel: logLevel{"info"}, Outbound: outbound{"capture"}, Private: true,
	}
}

func production() settings {
	return settings{
		HTTP: address{":80"}, HTTPTLS: address{":443"}, SMTP: address{":25"}, Submission: address{":587"},
		Submissions: address{":465"}, IMAP: address{":143"}, IMAPS: address{":993"}, DNS: address{":53"}, Directory: acmeURL{ca.LetsEncrypt},
		MXPort: 25, LogFormat: logForm{"text"}, LogLevel: logLevel{"info"}, Spam: spamSettings{DMARCReports: true},
	}
}

// Sandbox tells whether this is the sandbox: nobody has said what this host is called.
func (s *settings) Sandbox() bool { return s.Hostname.text == "" }

// loadSettings merges the defaults, the file in the data directory and the flags, which know the
// environment.
func loadSettings(c *cli.Context) (*settings, error) {
	path := filepath.Join(c.String("data"), "mailstead.toml")
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return mergeSettings(path, text, c)
}

func mergeSettings(path string, text []byte, c *cli.Context) (*settings, error) {
	var named struct {
		Hostname string `toml:"hostname"`
	}
	_ = toml.Unmarshal(text, &named) // mistakes are told below
	s := production()
	if c.String("hostname") == "" && named.Hostname == "" {
		s = sandbox()
	}
	if err := s.decodeFile(path, text); err != nil {
		return nil, err
	}
	for _, f := range flagFields() {
		if !c.IsSet(f.name) {
			continue
		}
		for _, value := range flagValues(c, f) {
			if err := setField(reflect.ValueOf(&s).Elem().Field(f.index), value); err != nil {
				return nil, usageError{fmt.Errorf("--%s: %w", f.name, err)}
			}
		}
	}
	return &s, s.check()
}

// decodeFile reads the file over what s holds.
func (s *settings) decodeFile(path string, text []byte) error {
	err := s.decode(string(text))
	if err == nil {
		return nil
	}
	return usageError{fileError(path, string(text), err)}
}

// decode reads text over what s holds. `dns` is an address or a table.
func (s *settings) decode(text string) error {
	var kind struct {
		DNS any `toml:"dns"`
	}
	_ = toml.Unmarshal([]byte(text), &kind) // mistakes are told below
	d := toml.NewDecoder(strings.NewReader(text)).DisallowUnknownFields()
	var err error
	if _, table := kind.DNS.(map[string]any); table {
		in := struct {
			*settings
			DNS *dnsSettings `toml:"dns"`
		}{s, &s.Zones}
		err = d.Decode(&in)
		if s.Zones.Listen.text != "" {
			s.DNS = s.Zones.Listen
		}
	} else {
		in := struct {
			*settings
			DNS *address `toml:"dns"`
		}{s, &s.DNS}
		err = d.Decode(&in)
	}
	return err
}

// fileError says where in the file the mistake is.
func fileError(path, text string, err error) error {
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) {
		row, _ := unknown.Errors[0].Position()
		return fmt.Errorf("%s, line %d: there is no setting %q; see `mailstead serve --help` for those there are", path, row, strings.Join(unknown.Errors[0].Key(), "."))
	}
	keys := fileKeys(text)
	var wrong *toml.DecodeError
	if errors.As(err, &wrong) {
		row, _ := wrong.Position()
		if k, what := wrongType(keys, row); what != "" {
			return fmt.Errorf("%s, line %d: %s %s", path, k.row, k.name, what)
		}
		if len(wrong.Key()) > 0 {
			return fmt.Errorf("%s, line %d: %s: %s", path, row, strings.Join(wrong.Key(), "."), withoutTypes(wrong.Error()))
		}
		return fmt.Errorf("%s, line %d: %s", path, row, withoutTypes(wrong.Error()))
	}
	row := lineOf(text, err)
	if k, what := wrongType(keys, row); what != "" {
		return fmt.Errorf("%s, line %d: %s %s", path, k.row, k.name, what)
	}
	if row > 0 {
		return fmt.Errorf("%s, line %d: %s: %w", path, row, keyAt(keys, row), err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// withoutTypes says what the decoder says without the names of our types.
func withoutTypes(text string) string {
	text = strings.NewReplacer("toml: ", "", "main.port", "a port, from 1 to 65535", "main.count", "a count, a whole number that is not negative").Replace(text)
	if given, _, ok := strings.Cut(text, " into struct field "); ok {
		return "it has the wrong type: " + strings.TrimPrefix(given, "cannot decode TOML ") + " is not possible here"
	}
	return text
}

// lineOf finds the line of a mistake that the decoder tells without it, as it does for numbers
// where texts belong: the first line up to which the file has that mistake. It is 0 if there is
// none.
func lineOf(text string, mistake error) int {
	end := 0
	for row := 1; end < len(text); row++ {
		if next := strings.IndexByte(text[end:], '\n'); next >= 0 {
			end += next + 1
		} else {
			end = len(text)
		}
		if err := new(settings).decode(text[:end]); err != nil && err.Error() == mistake.Error() {
			return row
		}
	}
	return 0
}

// check finds what is wrong between settings.
func (s *settings) check() error {
	if (s.TLSCert == "") != (s.TLSKey == "") {
		return usageError{errors.New("--tls-cert and --tls-key go together: give both or neither")}
	}
	if err := s.checkTLS(); err != nil {
		return usageError{err}
	}
	if (s.EABKeyID == "") != (s.EABKey.key == nil) {
		return usageError{errors.New("acme_eab_kid and acme_eab_hmac go together")}
	}
	if s.Outbound.text == "relay" && len(s.Relay) == 0 {
		return usageError{errors.New("--outbound relay needs a [[relay]] in mailstead.toml")}
	}
	seen := map[string]bool{}
	for i := range s.Relay {
		if err := s.Relay[i].check(); err != nil {
			return usageError{fmt.Errorf("[[relay]] number %d: %w", i+1, err)}
		}
		if seen[s.Relay[i].Name] {
			return usageError{fmt.Errorf("[[relay]] number %d: the name %q is taken", i+1, s.Relay[i].Name)}
		}
		seen[s.Relay[i].Name] = true
	}
	if err := s.Registrar.check(); err != nil {
		return usageError{err}
	}
	if err := s.Spam.check(); err != nil {
		return err
	}
	return s.Zones.check()
}

// checkTLS finds listeners that have no certificate and would get none.
func (s *settings) checkTLS() error {
	if s.TLSCert != "" {
		return nil
	}
	for name, a := range map[string]address{"http-tls": s.HTTPTLS, "submissions": s.Submissions, "imaps": s.IMAPS} {
		switch {
		case !a.on() || s.Directory.on() && s.HTTP.on():
		case s.Directory.on():
			return fmt.Errorf("--%s needs a certificate, and the certificate authority looks for its challenge over HTTP: set --http, or give --tls-cert and --tls-key", name)
		default:
			return fmt.Errorf("--%s needs a certificate: give --tls-cert and --tls-key, set --acme-directory, or set --%s off", name, name)
		}
	}
	return nil
}

// check fills what a relay leaves out, and finds what is missing.
func (r *relaySettings) check() error {
	if r.Name == "" || r.Kind.text == "" || r.Host == "" {
		return errors.New("name, kind and host are required")
	}
	if r.Port == 0 {
		r.Port = 587
	}
	if r.TLS.text == "" {
		r.TLS.text = "starttls"
	}
	if r.Kind.text == "ses" && r.Region == "" {
		return errors.New("kind ses needs its region, such as us-east-1")
	}
	if err := service.CheckRelay(r.service()); err != nil {
		return err
	}
	if u, err := url.Parse(r.SNSURL); r.SNSURL != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
		return errors.New("sns_url must be https:// and a host")
	}
	return secretOf("password", &r.Password, r.PasswordFile)
}

func (r *relaySettings) service() service.Relay {
	return service.Relay{
		Name: r.Name, Kind: r.Kind.text, Host: r.Host, Port: int(r.Port), TLS: r.TLS.text, Username: r.Username, Password: r.Password,
		Region: r.Region, TopicARN: r.TopicARN, WebhookSecret: r.WebhookSecret, IDPattern: r.IDPattern.text, IDTemplate: r.IDTemplate,
		NoDKIM: r.DKIM != nil && !*r.DKIM, ReturnPath: r.ReturnPath.text, SNSURL: r.SNSURL, ControlHeaders: r.ControlHeaders,
	}
}

// secretOf reads a secret from its file, if it is given as one.
func secretOf(name string, secret *string, file string) error {
	if file == "" {
		return nil
	}
	if *secret != "" {
		return fmt.Errorf("give %s or %s_file, not both", name, name)
	}
	text, err := os.ReadFile(file)
	*secret = strings.TrimRight(string(text), "\r\n")
	return err
}

// A flagField is a field of settings that is a flag.
type flagField struct {
	index       int
	name, usage string
	kind        reflect.Type
}

func flagFields() []flagField {
	var out []flagField
	t := reflect.TypeFor[settings]()
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("flag")
		if name == "" {
			name = strings.ReplaceAll(f.Tag.Get("toml"), "_", "-")
		}
		if usage := f.Tag.Get("usage"); usage != "" {
			out = append(out, flagField{i, name, usage, f.Type})
		}
	}
	return out
}

// serveFlags are the flags of serve, one for each field.
func serveFlags() []cli.Flag {
	var out []cli.Flag
	for _, f := range flagFields() {
		env := []string{envName(f.name)}
		switch f.kind {
		case reflect.TypeFor[toggle]():
			out = append(out, &cli.BoolFlag{Name: f.name, Usage: f.usage, EnvVars: env})
		case reflect.TypeFor[ipList](), reflect.TypeFor[netList]():
			out = append(out, &cli.StringSliceFlag{Name: f.name, Usage: f.usage, EnvVars: env})
		default:
			out = append(out, &cli.StringFlag{Name: f.name, Usage: f.usage, EnvVars: env})
		}
	}
	return out
}

func envName(flag string) string {
	return "MAILSTEAD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func flagValues(c *cli.Context, f flagField) []string {
	switch f.kind {
	case reflect.TypeFor[toggle]():
		return []string{strconv.FormatBool(c.Bool(f.name))}
	case reflect.TypeFor[ipList](), reflect.TypeFor[netList]():
		return []string{strings.Join(c.StringSlice(f.name), ",")}
	}
	return []string{c.String(f.name)}
}

// setField sets a field from a flag's text.
func setField(v reflect.Value, text string) error {
	if u, ok := v.Addr().Interface().(interface{ UnmarshalText([]byte) error }); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(text == "true")
	default:
		v.SetString(text)
	}
	return nil
}

// A usageError is a mistake in how the program was called or configured: exit code 2.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }
