package config

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mta"
)

// relaySettings is an entry of [[relay]].
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

// check fills in what a relay leaves out, and finds what is missing or wrong.
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
	if err := mta.CheckRelay(r.service()); err != nil {
		return err
	}
	if u, err := url.Parse(r.SNSURL); r.SNSURL != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
		return errors.New("sns_url must be https:// and a host")
	}
	return secretOf("password", &r.Password, r.PasswordFile)
}

func (r *relaySettings) service() core.Relay {
	return core.Relay{
		Name: r.Name, Kind: r.Kind.text, Host: r.Host, Port: int(r.Port), TLS: r.TLS.text, Username: r.Username, Password: r.Password,
		Region: r.Region, TopicARN: r.TopicARN, WebhookSecret: r.WebhookSecret, IDPattern: r.IDPattern.text, IDTemplate: r.IDTemplate,
		NoDKIM: r.DKIM != nil && !*r.DKIM, ReturnPath: r.ReturnPath.text, SNSURL: r.SNSURL, ControlHeaders: r.ControlHeaders,
	}
}

// secretOf reads a secret from its file, if a file is given.
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
