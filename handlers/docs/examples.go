package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/mailstead/mailstead/handlers/openapi"
)

// An example is the same request in one language.
type example struct {
	language string // of the code, as Markdown names it
	title    string
	text     string
}

// A request is what the examples of an operation send.
type request struct {
	operation string
	method    string
	url       string
	body      string // JSON with indentation; "": none
	file      string // name of the file for the answer; "": the answer is shown
	arguments string // for the command line: JSON, "" if there are none
}

// examplesOf returns the examples of an operation.
func (s *Site) examplesOf(o openapi.PathOperation) []example {
	r := s.exampleRequest(o)
	return []example{
		{"sh", "curl", r.curl()},
		{"js", "JavaScript", r.javaScript()},
		{"python", "Python", r.python()},
		{"go", "Go", r.goProgram()},
		{"sh", "Command line", r.commandLine()},
	}
}

// exampleRequest returns the request of an operation's examples: its path and required parameters,
// and the body of the OpenAPI document's example.
func (s *Site) exampleRequest(o openapi.PathOperation) request {
	at, query, arguments := o.Path, url.Values{}, openapi.Dict[any]{}
	for _, p := range o.Parameters {
		p = s.doc.Parameter(p)
		if !p.Required {
			continue
		}
		value := s.doc.Example(p.Schema)
		arguments.Set(p.Name, value)
		if p.In == "path" {
			at = strings.ReplaceAll(at, "{"+p.Name+"}", url.PathEscape(fmt.Sprint(value)))
		} else {
			query.Set(p.Name, fmt.Sprint(value))
		}
	}
	r := request{operation: o.Row.Name, method: o.Method, url: s.base() + at}
	if len(query) > 0 {
		r.url += "?" + query.Encode()
	}
	if o.RequestBody != nil {
		fields, _ := o.RequestBody.Content.Get(jsonMedia).Example.(openapi.Dict[any])
		for _, f := range fields {
			arguments.Set(f.Name, f.Value)
		}
		if len(fields) > 0 || o.RequestBody.Required {
			r.body = indentJSON(fields)
		}
	}
	if len(arguments) > 0 {
		var compact bytes.Buffer
		_ = json.Compact(&compact, []byte(indentJSON(arguments))) // it is JSON
		r.arguments = compact.String()
	}
	if content := o.Responses.Get(fmt.Sprint(o.Row.Status)).Content; content.Get(jsonMedia) == nil && len(content) > 0 {
		r.file = map[string]string{"message/rfc822": "message.eml", "application/zip": "attachments.zip", "text/csv": "export.csv"}[content[0].Name]
		if r.file == "" {
			r.file = "attachment"
		}
	}
	return r
}

// inShell returns a text as one word of a shell.
func inShell(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// curl returns the request as a command.
func (r *request) curl() string {
	out := "curl"
	if r.method != "GET" {
		out += " -X " + r.method
	}
	out += " " + inShell(r.url) + " \\\n  -H \"Authorization: Bearer $MAILSTEAD_TOKEN\""
	if r.body != "" {
		out += " \\\n  -H 'Content-Type: application/json' \\\n  -d " + inShell(r.body)
	}
	if r.file != "" {
		out += " \\\n  -o " + r.file
	}
	return out
}

// javaScript returns the request as a module for Node.
func (r *request) javaScript() string {
	var out strings.Builder
	if r.file != "" {
		out.WriteString("import { writeFile } from \"node:fs/promises\";\n\n")
	}
	fmt.Fprintf(&out, "const response = await fetch(%q, {\n", r.url)
	if r.method != "GET" {
		fmt.Fprintf(&out, "  method: %q,\n", r.method)
	}
	out.WriteString("  headers: {\n    Authorization: `Bearer ${process.env.MAILSTEAD_TOKEN}`,\n")
	if r.body != "" {
		out.WriteString("    \"Content-Type\": \"application/json\",\n")
	}
	out.WriteString("  },\n")
	if r.body != "" {
		out.WriteString("  body: JSON.stringify(" + indentLines(r.body, "  ") + "),\n")
	}
	out.WriteString("});\nif (!response.ok) throw new Error(`${response.status} ${await response.text()}`);\n")
	if r.file != "" {
		fmt.Fprintf(&out, "await writeFile(%q, Buffer.from(await response.arrayBuffer()));", r.file)
	} else {
		out.WriteString("console.log(await response.json());")
	}
	return out.String()
}

// python returns the request as a program that needs the standard library alone.
func (r *request) python() string {
	var out strings.Builder
	out.WriteString("import json\nimport os\nimport urllib.request\n\nrequest = urllib.request.Request(\n")
	fmt.Fprintf(&out, "    %q,\n    method=%q,\n", r.url, r.method)
	out.WriteString("    headers={\n        \"Authorization\": \"Bearer \" + os.environ[\"MAILSTEAD_TOKEN\"],\n")
	if r.body != "" {
		out.WriteString("        \"Content-Type\": \"application/json\",\n")
	}
	out.WriteString("    },\n")
	if r.body != "" {
		out.WriteString("    data=json.dumps(" + indentLines(pythonLiteral(r.body), "    ") + ").encode(),\n")
	}
	out.WriteString(")\nwith urllib.request.urlopen(request) as response:\n")
	if r.file != "" {
		fmt.Fprintf(&out, "    with open(%q, \"wb\") as file:\n        file.write(response.read())", r.file)
	} else {
		out.WriteString("    print(json.load(response))")
	}
	if !strings.Contains(out.String(), "json.") {
		return strings.TrimPrefix(out.String(), "import json\n")
	}
	return out.String()
}

// jsonWord finds the texts of a JSON value, so that they are left alone, and the words that Python
// writes in another way.
var jsonWord = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|true|false|null`)

// pythonLiteral returns a JSON value as Python writes it.
func pythonLiteral(value string) string {
	return jsonWord.ReplaceAllStringFunc(value, func(word string) string {
		if other, ok := map[string]string{"true": "True", "false": "False", "null": "None"}[word]; ok {
			return other
		}
		return word
	})
}

// goProgram returns the request as a whole program, formatted by gofmt.
func (r *request) goProgram() string {
	var out strings.Builder
	out.WriteString("package main\n\nimport (\n\t\"io\"\n\t\"log\"\n\t\"net/http\"\n\t\"os\"\n")
	body := "nil"
	if r.body != "" {
		out.WriteString("\t\"strings\"\n")
		body = "strings.NewReader(`" + r.body + "`)"
	}
	fmt.Fprintf(&out, ")\n\nfunc main() {\n\treq, err := http.NewRequest(%q, %q, %s)\n", r.method, r.url, body)
	const check = "\tif err != nil {\n\t\tlog.Fatal(err)\n\t}\n"
	out.WriteString(check + "\treq.Header.Set(\"Authorization\", \"Bearer \"+os.Getenv(\"MAILSTEAD_TOKEN\"))\n")
	if r.body != "" {
		out.WriteString("\treq.Header.Set(\"Content-Type\", \"application/json\")\n")
	}
	out.WriteString("\tresp, err := http.DefaultClient.Do(req)\n" + check + "\tdefer resp.Body.Close()\n\tanswer, err := io.ReadAll(resp.Body)\n" + check)
	out.WriteString("\tif resp.StatusCode >= 300 {\n\t\tlog.Fatalf(\"%s: %s\", resp.Status, answer)\n\t}\n")
	if r.file != "" {
		fmt.Fprintf(&out, "\tif err := os.WriteFile(%q, answer, 0o600); err != nil {\n\t\tlog.Fatal(err)\n\t}\n}", r.file)
	} else {
		out.WriteString("\tos.Stdout.Write(answer)\n}")
	}
	return out.String()
}

// commandLine returns the request as a command on the server itself.
func (r *request) commandLine() string {
	out := "mailstead call " + r.operation
	if r.arguments != "" {
		out += " " + inShell(r.arguments)
	}
	if r.file != "" {
		out += " > " + r.file
	}
	return out
}

// indentLines puts indent before all lines of a text but the first.
func indentLines(text, indent string) string { return strings.ReplaceAll(text, "\n", "\n"+indent) }
