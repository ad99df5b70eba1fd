package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov/builtin"
)

// dnsSettings is the table [dns]. Its key listen has the address that the key dns has in a file
// without this table.
type dnsSettings struct {
	Listen        Address             `toml:"listen"`
	CheckInterval duration            `toml:"check_interval" text:"how often the records of each domain are looked up"`
	Secondaries   []secondarySettings `toml:"secondaries" entry:"name"`
	Catalog       dnsName             `toml:"catalog" text:"name of the catalog zone for the secondaries"`
	TrustResolver bool                `toml:"trust_resolver" text:"whether the AD bit of a resolver on another machine is believed"`
}

// secondarySettings is a secondary nameserver: a table of [[dns.secondaries]], or only an address
// in the list secondaries.
type secondarySettings struct {
	Name       string        `toml:"name" text:"name of the secondary"`
	Address    serverAddress `toml:"address" text:"IP address and port of the secondary"`
	Nameserver dnsName       `toml:"nameserver" text:"name of the secondary in NS records"`
	TSIGName   dnsName       `toml:"tsig_name" text:"name of the TSIG key"`
	Algorithm  tsigAlgorithm `toml:"tsig_algorithm" text:"algorithm of the TSIG key"`
	Secret     tsigSecret    `toml:"tsig_secret" secret:"yes" text:"TSIG key, in base64"`
	SecretFile string        `toml:"tsig_secret_file" text:"file with the TSIG key"`
}

// UnmarshalText parses an entry that is only an address.
func (s *secondarySettings) UnmarshalText(text []byte) error { return s.Address.UnmarshalText(text) }

// check fills in the defaults of all secondaries. It returns an error if one is invalid or two
// conflict.
func (d *dnsSettings) check() error {
	keys := map[string]*secondarySettings{}
	for i := range d.Secondaries {
		s := &d.Secondaries[i]
		if err := s.check(); err != nil {
			return fmt.Errorf("[[dns.secondaries]] number %d: %w", i+1, err)
		}
		same := func(o secondarySettings) bool { return o.Name == s.Name || o.Address == s.Address }
		if slices.ContainsFunc(d.Secondaries[:i], same) {
			return fmt.Errorf("[[dns.secondaries]] number %d: another entry already has the name %s or the address %s", i+1, s.Name, s.Address.at)
		}
		if s.TSIGName.text == "" {
			continue
		}
		if other := keys[s.TSIGName.text]; other != nil && (other.Algorithm != s.Algorithm || !slices.Equal(other.Secret.bytes, s.Secret.bytes)) {
			return fmt.Errorf("[[dns.secondaries]] number %d: the TSIG key %s differs from the key of the same name of %s; use another name", i+1, s.TSIGName.text, other.Name)
		}
		keys[s.TSIGName.text] = s
	}
	if d.Catalog.text != "" && len(d.Secondaries) == 0 {
		return errors.New("[dns] catalog is for secondaries: list them as [[dns.secondaries]]")
	}
	return nil
}

const defaultTSIGAlgorithm = "hmac-sha256"

func (s *secondarySettings) check() error {
	if !s.Address.at.IsValid() {
		return errors.New("address is required, such as 192.0.2.53 or 192.0.2.53:53")
	}
	if s.Name == "" {
		s.Name = s.Address.at.String()
	}
	if s.SecretFile != "" {
		if s.Secret.bytes != nil {
			return errors.New("give tsig_secret or tsig_secret_file, not both")
		}
		text, err := os.ReadFile(s.SecretFile)
		if err != nil {
			return err
		}
		if err := s.Secret.UnmarshalText([]byte(strings.TrimSpace(string(text)))); err != nil {
			return fmt.Errorf("tsig_secret_file %s: %w", s.SecretFile, err)
		}
	}
	if (s.TSIGName.text == "") != (s.Secret.bytes == nil) {
		return errors.New("tsig_name and tsig_secret (or tsig_secret_file) go together")
	}
	if s.TSIGName.text == "" && s.Algorithm.text != "" {
		return errors.New("tsig_algorithm needs a key: give tsig_name and tsig_secret too")
	}
	if s.Algorithm.text == "" {
		s.Algorithm.text = defaultTSIGAlgorithm
	}
	return nil
}

// secondaries converts the entries to the type of package builtin.
func (d *dnsSettings) secondaries() []builtin.Secondary {
	var out []builtin.Secondary
	for _, s := range d.Secondaries {
		one := builtin.Secondary{Name: s.Name, Addr: s.Address.at, Nameserver: s.Nameserver.text}
		if s.TSIGName.text != "" {
			one.Key = &builtin.TSIGKey{Name: s.TSIGName.text, Algorithm: s.Algorithm.text, Secret: s.Secret.bytes}
		}
		out = append(out, one)
	}
	return out
}

// A serverAddress is the IP address and port of a DNS server. The default port is 53.
type serverAddress struct{ at netip.AddrPort }

// UnmarshalText parses the address.
func (a *serverAddress) UnmarshalText(text []byte) error {
	host, port := string(text), "53"
	if _, err := netip.ParseAddr(host); err != nil {
		host, port, err = net.SplitHostPort(host)
		if err != nil {
			return fmt.Errorf("%q is not an IP address; write it as 192.0.2.53 or 192.0.2.53:5353", text)
		}
	}
	ip, err := netip.ParseAddr(host)
	n, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil || n == 0 || ip.IsUnspecified() {
		return fmt.Errorf("%q is not an IP address; write it as 192.0.2.53 or 192.0.2.53:5353", text)
	}
	a.at = netip.AddrPortFrom(ip.Unmap(), uint16(n))
	return nil
}

// A dnsName is a domain name, lower-case, without a trailing dot. TSIG keys have such names too.
type dnsName struct{ checkedText }

// UnmarshalText checks the name.
func (d *dnsName) UnmarshalText(text []byte) error {
	name := strings.TrimSuffix(strings.ToLower(string(text)), ".")
	invalid := strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
	})
	if _, ok := dns.IsDomainName(name); !ok || invalid || name == "" {
		return fmt.Errorf("%q is not a domain name", text)
	}
	d.text = name
	return nil
}

// A tsigAlgorithm is a TSIG algorithm of RFC 8945 section 6.
type tsigAlgorithm struct{ checkedText }

// UnmarshalText checks the algorithm.
func (a *tsigAlgorithm) UnmarshalText(text []byte) (err error) {
	a.text, err = oneOf(text, "hmac-sha256", "hmac-sha384", "hmac-sha512", "hmac-sha224", "hmac-sha1")
	return err
}

// minSecretBytes is the minimum length of a TSIG secret, in bytes.
const minSecretBytes = 16

// A tsigSecret is the secret of a TSIG key. Settings have it in base64.
type tsigSecret struct{ bytes []byte }

// UnmarshalText decodes the secret. Its error does not contain the secret.
func (s *tsigSecret) UnmarshalText(text []byte) (err error) {
	s.bytes, err = base64.StdEncoding.DecodeString(string(text))
	if err != nil || len(s.bytes) < minSecretBytes {
		s.bytes = nil
		return fmt.Errorf("the secret must be base64 of at least %d bytes, such as `openssl rand -base64 32` prints", minSecretBytes)
	}
	return nil
}
