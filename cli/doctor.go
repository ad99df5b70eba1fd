package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/service/health"
)

func (p *Program) doctorCommand() *cli.Command {
	return p.command("doctor", "check the host and everything around it, and say what to mend", "", func(c *cli.Context, e *env) error {
		if err := noArguments(c); err != nil {
			return err
		}
		return runDoctor(c.Context, e)
	}, jsonFlag())
}

// runDoctor runs every check of the installation and prints how to fix each problem. It returns an
// error if a check has the status error.
func runDoctor(ctx context.Context, e *env) error {
	report := new(health.Report)
	if err := e.ask(ctx, operator.DoctorPath, struct{}{}, report); err != nil {
		return err
	}
	if err := e.print(report, checksText(report.Checks, newPrinter(e.stdout))); err != nil {
		return err
	}
	if report.Status == health.Error {
		return errors.New("the checks found errors that have to be fixed")
	}
	return nil
}

// checksText formats the results of checks for people, with the fix of each problem.
func checksText(checks []health.Check, p *printer) string {
	var text strings.Builder
	for _, check := range checks {
		status := p.styled(statusColours[check.Status], fmt.Sprintf("%-8s", check.Status))
		fmt.Fprintf(&text, "%s %-17s %s: %s\n", status, check.Code, plainText(check.Subject), plainText(check.Message))
		if check.Mend != nil {
			fmt.Fprintf(&text, "%-26s → %s\n", "", plainText(*check.Mend))
		}
	}
	return text.String()
}
