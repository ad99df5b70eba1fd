package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnitIsNamedAsItIs: what setup says to run starts the unit that it wrote.
func TestUnitIsNamedAsItIs(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"/etc/systemd/system/mailstead.service": "mailstead", "/etc/systemd/system/second.service": "second",
		"/srv/mail/second.service": "/srv/mail/second.service", "second.service": filepath.Join(here, "second.service"),
	} {
		d := &setupResult{Data: "/srv/mail"}
		if text := d.text(file, false); !strings.Contains(text, "systemctl daemon-reload && systemctl enable --now "+want+"\n") {
			t.Errorf("%s is not started by %s: %s", file, want, text)
		}
	}
}

// TestSetupPrintsWhatWorksHere: the commands are those of this host and of this user.
func TestSetupPrintsWhatWorksHere(t *testing.T) {
	low := []setupPort{{Name: "smtp", Port: 25, Free: true}}
	for name, c := range map[string]struct {
		d          setupResult
		unit       string
		serverRuns bool
		want, not  []string
	}{
		"root without systemd": {setupResult{Data: "/srv/mail", Ports: low, host: setupHost{program: "mailstead", path: "/usr/bin/mailstead", systemLinux: true}}, "", false,
			[]string{"\n  mailstead serve --data /srv/mail\n", "mailstead doctor --data /srv/mail"}, []string{"systemctl", "sudo", "setcap", "ufw"}},
		"another user": {setupResult{Data: "/home/ann/mail", Ports: low, host: setupHost{program: "/home/ann/mailstead", path: "/home/ann/mailstead", sudo: "sudo ", systemd: true, systemLinux: true}}, "", false,
			[]string{"sudo setcap cap_net_bind_service=+ep /home/ann/mailstead", "\n  /home/ann/mailstead serve --data /home/ann/mail\n", "sudo /home/ann/mailstead setup --data /home/ann/mail --unit /etc/systemd/system/mailstead.service"}, nil},
		"another user with high ports": {setupResult{Data: "/home/ann/mail", Ports: []setupPort{{Name: "smtp", Port: 2525}}, host: setupHost{program: "mailstead", sudo: "sudo ", systemLinux: true}}, "", false, nil, []string{"setcap"}},
		"a service without its user": {setupResult{Data: "/srv/my mail", userMissing: true, host: setupHost{program: "mailstead", sudo: "sudo "}}, "/etc/systemd/system/mailstead.service", false,
			[]string{"sudo useradd --system --user-group --no-create-home --home-dir '/srv/my mail' --shell /usr/sbin/nologin mailstead", "sudo chown -R mailstead: '/srv/my mail'", "sudo systemctl daemon-reload && sudo systemctl enable --now mailstead\n"}, nil},
		"ufw":                   {setupResult{Firewall: []string{"ufw allow proto tcp to any port 25"}, openPorts: []string{"25/tcp"}, host: setupHost{firewall: "ufw", sudo: "sudo "}}, "", false, []string{"\n  sudo ufw allow proto tcp to any port 25\n"}, []string{"firewall-cmd"}},
		"firewalld":             {setupResult{Firewall: []string{"ufw x"}, openPorts: []string{"25/tcp", "53/udp"}, host: setupHost{firewall: "firewall-cmd"}}, "", false, []string{"firewall-cmd --permanent --add-port=25/tcp\n", "--add-port=53/udp\n", "firewall-cmd --reload\n"}, []string{"ufw"}},
		"no firewall":           {setupResult{Firewall: []string{"ufw x"}, openPorts: []string{"25/tcp", "53/udp"}}, "", false, []string{"for what comes to these ports: 25/tcp, 53/udp."}, []string{"ufw", "firewall-cmd"}},
		"a server that runs":    {setupResult{host: setupHost{systemd: true}}, "", true, []string{"systemctl restart mailstead"}, nil},
		"one without systemd":   {setupResult{}, "", true, []string{"Stop the server and start it again"}, []string{"systemctl"}},
		"notes about the user":  {setupResult{Notes: []string{"setup makes no user."}}, "", false, []string{"\nsetup makes no user.\n"}, nil},
		"a port that is in use": {setupResult{Ports: []setupPort{{Name: "smtp", Port: 25, Message: "master has it."}}}, "", false, []string{"\nPort 25 (smtp): master has it.\n"}, nil},
	} {
		text := c.d.text(c.unit, c.serverRuns)
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is missing in %s", name, want, text)
			}
		}
		for _, not := range c.not {
			if strings.Contains(text, not) {
				t.Errorf("%s: %q is in %s", name, not, text)
			}
		}
	}
}

// TestSetupSaysThatItMakesNoUser: without a service to install, the directory stays with its owner,
// and setup says so.
func TestSetupSaysThatItMakesNoUser(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	args := setupArgs(dir, "--email", "ops@example.com", "--unit", filepath.Join(t.TempDir(), "mailstead.service"))
	args = append(args[:2], args[3:]...) // without --json
	text, err := mailsteadCommand(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	want := "setup makes no user mailstead, since it installs no service"
	if os.Geteuid() != 0 {
		want = "setup does not run as root, so it makes no user mailstead"
	}
	if _, known := lookupUser("mailstead"); known {
		want = fmt.Sprintf("Mailstead is set up in %s", dir) // it is there already
	}
	if !strings.Contains(text, want) {
		t.Errorf("%q is missing in %s", want, text)
	}
}
