package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/milter"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/reputation"
)

// registrarSettings is the table [registrar]. The empty table [registrar.sandbox] turns the sandbox
// registrar on.
type registrarSettings struct {
	NameCom    *nameComSettings    `toml:"namecom"`
	Cloudflare *cloudflareSettings `toml:"cloudflare"`
	Sandbox    *struct{}           `toml:"sandbox" change:"store" text:"whether the sandbox registrar is on, which sells pretend names"`
}

type nameComSettings struct {
	Username  string `toml:"username" change:"store" text:"user name at name.com"`
	Token     string `toml:"token" change:"store" secret:"yes" text:"API token of name.com"`
	TokenFile string `toml:"token_file" change:"file" text:"file with the API token"`
	BaseURL   apiURL `toml:"base_url" change:"file" text:"URL of the API, such as that of the test environment"`
}

type cloudflareSettings struct {
	AccountID string `toml:"account_id" change:"store" text:"ID of the Cloudflare account that pays"`
	Token     string `toml:"token" change:"store" secret:"yes" text:"API token with the permission Account: Registrar: Domains Edit"`
	TokenFile string `toml:"token_file" change:"file" text:"file with the API token"`
	BaseURL   apiURL `toml:"base_url" change:"file" text:"URL of the API"`
}

// check reads tokens from files. It returns an error if a required setting is missing.
func (r *registrarSettings) check() error {
	if n := r.NameCom; n != nil {
		if err := checkAccount("namecom", "username", n.Username, &n.Token, n.TokenFile); err != nil {
			return err
		}
	}
	if c := r.Cloudflare; c != nil {
		return checkAccount("cloudflare", "account_id", c.AccountID, &c.Token, c.TokenFile)
	}
	return nil
}

// checkAccount reads the token from file if that is set, and returns an error if the account or the
// token is missing. table and setting are names for the error.
func checkAccount(table, setting, account string, token *string, file string) error {
	if err := readSecret("token", token, file); err != nil {
		return fmt.Errorf("[registrar.%s]: %w", table, err)
	}
	if account == "" || *token == "" {
		return fmt.Errorf("[registrar.%s]: %s and token, or token_file, are required", table, setting)
	}
	return nil
}

// edgeSettings is one of the tables [cloudflare], [route53], [hetzner] and [desec]. It has no
// token, because each account has its own.
type edgeSettings struct {
	BaseURL apiURL `toml:"base_url" text:"URL of the provider's API"`
}

// An apiURL is the base URL of an API.
type apiURL struct{ checkedText }

// UnmarshalText checks that the text is an HTTP URL without query.
func (a *apiURL) UnmarshalText(text []byte) error {
	u, err := url.Parse(string(text))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q is not the URL of an API; write, for example, https://api.example.com/v4", text)
	}
	a.text = string(text)
	return nil
}

// rdapSettings is the table [rdap].
type rdapSettings struct {
	BootstrapURL bootstrapURL `toml:"bootstrap_url" text:"URL of the list of RDAP servers, or off"`
}

// A bootstrapURL is the URL of the list of RDAP servers (RFC 9224), "off", or "" if it is not set.
type bootstrapURL struct{ checkedText }

// UnmarshalText checks that the text is an HTTP URL or "off".
func (b *bootstrapURL) UnmarshalText(text []byte) error {
	b.text = string(text)
	if b.text == "off" {
		return nil
	}
	u, err := url.Parse(b.text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil {
		return fmt.Errorf("%q is not a URL; write, for example, https://data.iana.org/rdap/dns.json, or off", text)
	}
	return nil
}

// relaySettings is a table of [[relay]]: a server that delivers outgoing mail for us.
type relaySettings struct {
	Name          string         `toml:"name" change:"file" text:"name of the relay"`
	Kind          relayKind      `toml:"kind" change:"store" text:"provider of the relay"`
	Host          string         `toml:"host" change:"store" text:"host of the relay's SMTP server"`
	Port          port           `toml:"port" change:"store" text:"port of the relay's SMTP server"`
	TLS           relayTLS       `toml:"tls" change:"store" text:"how TLS begins; none sends mail in the clear"`
	Username      string         `toml:"username" change:"store" text:"user name for the log-in at the relay"`
	Password      string         `toml:"password" change:"store" secret:"yes" text:"password for the log-in at the relay"`
	PasswordFile  string         `toml:"password_file" change:"file" text:"file with the password"`
	Region        string         `toml:"region" change:"store" text:"AWS region, for kind ses"`
	TopicARN      string         `toml:"topic_arn" change:"store" text:"SNS topic of notices that you made yourself, for kind ses"`
	WebhookSecret string         `toml:"webhook_secret" change:"store" secret:"yes" text:"secret that authenticates the notices of postmark, mailgun and sendgrid"`
	IDPattern     pattern        `toml:"id_pattern" change:"store" text:"regular expression that finds the relay's Message-ID in its answer, for kind custom"`
	IDTemplate    string         `toml:"id_template" change:"store" text:"form of the Message-ID that id_pattern finds, for kind custom"`
	DKIM          *bool          `toml:"dkim" change:"store" text:"whether mail through the relay is signed with DKIM here"`
	ReturnPath    returnPathKind `toml:"return_path" change:"store" text:"return path of mail through the relay: that of the sender, or one for each recipient"`
	AccessKeyFile string         `toml:"access_key_file" change:"file" text:"file with the AWS access key that makes the topic of notices, for kind ses"`
	SNSURL        string         `toml:"sns_url" change:"store" text:"URL of SNS in place of Amazon's, for tests"`
	SESURL        string         `toml:"ses_url" change:"store" text:"URL of the API of SES in place of Amazon's, for tests"`

	ControlHeaders []string `toml:"control_headers" change:"store" text:"beginnings of header fields that are commands to the relay"`

	stored bool // the entry is in the store, so that the rules of checkStored hold
}

// check fills in the defaults of a relay, and returns an error if a setting is missing or wrong.
func (r *relaySettings) check() error {
	if r.Name == "" || r.Kind.text == "" || r.Host == "" {
		return errors.New("name, kind and host are required")
	}
	r.fillDefaults()
	if r.Kind.text == "ses" && r.Region == "" {
		return errors.New("kind ses needs its region, such as us-east-1")
	}
	if err := outbound.CheckRelay(r.service()); err != nil {
		return err
	}
	for name, address := range map[string]string{"sns_url": r.SNSURL, "ses_url": r.SESURL} {
		if u, err := url.Parse(address); address != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
			return fmt.Errorf("%s must be an https URL", name)
		}
	}
	if r.stored {
		return r.checkStored()
	}
	return readSecret("password", &r.Password, r.PasswordFile)
}

func (r *relaySettings) fillDefaults() {
	signs := true
	r.Port, r.TLS.text, r.DKIM = cmp.Or(r.Port, 587), cmp.Or(r.TLS.text, "starttls"), cmp.Or(r.DKIM, &signs)
}

// checkStored returns an error if a relay in the store breaks the rules for what is set by API.
func (r *relaySettings) checkStored() error {
	switch {
	case r.Password != "" && r.TLS.text == "none":
		return errors.New("tls = \"none\" would send the password in the clear: such a relay can be set only in mailstead.toml")
	case r.Username != "" && r.Password == "":
		return errors.New("username needs its password: give both")
	}
	return nil
}

// service converts the settings to the type of the service.
func (r *relaySettings) service() core.Relay {
	return core.Relay{
		Name: r.Name, Kind: r.Kind.text, Host: r.Host, Port: int(r.Port), TLS: r.TLS.text, Username: r.Username, Password: r.Password,
		Region: r.Region, TopicARN: r.TopicARN, WebhookSecret: r.WebhookSecret, IDPattern: r.IDPattern.text, IDTemplate: r.IDTemplate,
		NoDKIM: r.DKIM != nil && !*r.DKIM, ReturnPath: r.ReturnPath.text, AccessKeyFile: r.AccessKeyFile, SNSURL: r.SNSURL, SESURL: r.SESURL,
		ControlHeaders: r.ControlHeaders, Guarded: r.stored,
	}
}

// destinationSettings is a table of [[destination]]: how to send to one receiving operator, such as
// google.com.
type destinationSettings struct {
	Operator    dnsName   `toml:"operator" change:"file" text:"registrable domain of the operator's MX hosts"`
	Connections *count    `toml:"connections" change:"store" text:"connections at a time to hosts of the operator; 0: no limit"`
	PerMinute   *count    `toml:"per_minute" change:"store" text:"messages to the operator in a minute; 0: no limit"`
	Pause       *duration `toml:"pause" change:"store" text:"how long nothing is sent after an answer that asks for less mail"`
	Relay       string    `toml:"relay" change:"store" text:"relay that takes all mail for the operator"`
}

const (
	maxPause       = 24 * time.Hour // maximum of [[destination]] pause
	maxConnections = 1000           // maximum of [[destination]] connections
	maxPerMinute   = 1000000        // maximum of [[destination]] per_minute
)

// check returns an error if a setting is missing or out of bounds.
func (d *destinationSettings) check() error {
	name := d.Operator.text
	if name == "" {
		return errors.New("operator is required: the registrable domain of the operator's MX hosts, such as google.com")
	}
	if registrable := reputation.OperatorOf(name, ""); registrable != name {
		return fmt.Errorf("operator = %q must be the registrable domain of the MX hosts, which is %s", name, registrable)
	}
	switch {
	case d.Connections != nil && *d.Connections > maxConnections:
		return fmt.Errorf("connections must be from 0 (no limit) to %d", maxConnections)
	case d.PerMinute != nil && *d.PerMinute > maxPerMinute:
		return fmt.Errorf("per_minute must be from 0 (no limit) to %d", maxPerMinute)
	case d.Pause != nil && (d.Pause.d < 0 || d.Pause.d > maxPause):
		return errors.New("pause must be from 0s to 24h")
	}
	return nil
}

// service converts the settings to the type of the service.
func (d *destinationSettings) service() core.Destination {
	out := core.Destination{Operator: d.Operator.text, Relay: d.Relay}
	if d.Connections != nil {
		n := int(*d.Connections)
		out.Connections = &n
	}
	if d.PerMinute != nil {
		n := int(*d.PerMinute)
		out.PerMinute = &n
	}
	if d.Pause != nil {
		out.Pause = &d.Pause.d
	}
	return out
}

// readSecret reads a secret from file, unless file is "". It returns an error if the secret is also
// set directly. name is the key of the secret, for the error.
func readSecret(name string, secret *string, file string) error {
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

// spamSettings is the table [spam]: how the server screens incoming mail.
type spamSettings struct {
	TrustedSealers   []dnsName   `toml:"trusted_sealers" change:"store" text:"forwarders whose ARC seals are trusted"`
	DMARCReports     bool        `toml:"dmarc_reports" change:"store" text:"whether aggregate reports are sent to domains that ask for them"`
	Milter           milterAddr  `toml:"milter" text:"mail filter that is asked about incoming mail: inet:HOST:PORT or unix:/PATH"`
	MilterTimeout    duration    `toml:"milter_timeout" change:"store" text:"how long the mail filter may take"`
	DNSBL            []dnsName   `toml:"dnsbl" change:"store" text:"DNS block lists in which clients are looked up"`
	DNSBLAction      dnsblAction `toml:"dnsbl_action" change:"store" text:"what happens to mail of clients on a block list"`
	Greylisting      bool        `toml:"greylisting" change:"store" text:"whether unknown senders must try again"`
	FirstSenderDelay duration    `toml:"first_sender_delay" change:"store" text:"delay of unknown senders, at most 1m"`
	Classifier       bool        `toml:"classifier" change:"store" text:"whether the spam filter learns and judges"`
	JunkScore        float64     `toml:"junk_score" change:"store" text:"score from 0 to 1 from which mail goes to Junk"`
}

const maxDNSBLs = 10 // maximum number of DNSBLs

// check returns an error if a value is out of bounds.
func (s *spamSettings) check() error {
	switch {
	case len(s.DNSBL) > maxDNSBLs:
		return fmt.Errorf("[spam] dnsbl: at most %d lists, because every message waits for all of them", maxDNSBLs)
	case s.FirstSenderDelay.d < 0 || s.FirstSenderDelay.d > time.Minute:
		return errors.New("[spam] first_sender_delay must be from 0s to 1m")
	case s.MilterTimeout.d < 0 || s.MilterTimeout.d > 5*time.Minute:
		return errors.New("[spam] milter_timeout must be from 1s to 5m; senders do not wait much longer")
	case !(s.JunkScore >= 0 && s.JunkScore <= 1): // false for NaN too
		return errors.New("[spam] junk_score: from 0 to 1, and 0.9 unless you have a reason")
	}
	return nil
}

// service converts the settings to the type of the service.
func (s *spamSettings) service() core.Spam {
	out := core.Spam{
		Reports: s.DMARCReports, DNSBLJunk: s.DNSBLAction.text == "junk", Greylisting: s.Greylisting, FirstDelay: s.FirstSenderDelay.d,
		Classifier: s.Classifier, JunkScore: s.JunkScore,
	}
	for _, d := range s.TrustedSealers {
		out.TrustedSealers = append(out.TrustedSealers, d.text)
	}
	for _, d := range s.DNSBL {
		out.DNSBL = append(out.DNSBL, d.text)
	}
	if s.Milter.address != "" {
		out.Milter = &milter.Client{Network: s.Milter.network, Address: s.Milter.address, Timeout: s.MilterTimeout.d}
	}
	return out
}

// A milterAddr is the address of a milter (a mail filter): inet:HOST:PORT or unix:PATH.
type milterAddr struct{ network, address string }

// UnmarshalText parses the address.
func (m *milterAddr) UnmarshalText(text []byte) error {
	kind, address, _ := strings.Cut(string(text), ":")
	switch kind {
	case "inet":
		if _, port, err := net.SplitHostPort(address); err == nil && port != "" {
			*m = milterAddr{"tcp", address}
			return nil
		}
	case "unix":
		if strings.HasPrefix(address, "/") {
			*m = milterAddr{"unix", address}
			return nil
		}
	}
	return fmt.Errorf("%q is not a filter; write inet:HOST:PORT or unix:/PATH", text)
}

// A dnsblAction is what to do with mail from an address on a DNSBL: reject or junk.
type dnsblAction struct{ checkedText }

func (dnsblAction) words() []string { return []string{"reject", "junk"} }

// UnmarshalText checks the action.
func (a *dnsblAction) UnmarshalText(text []byte) (err error) {
	a.text, err = oneOf(text, a.words()...)
	return err
}
