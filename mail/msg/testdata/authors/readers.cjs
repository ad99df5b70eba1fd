// Answers what nodemailer's addressparser takes for the authors of a header. Each line of
// standard input is a JSON list of header blocks, the answer a line with a list of lists.
// The argument is the folder of the nodemailer package.
const fs = require('fs');
const path = require('path');
const readline = require('readline');

const dir = process.argv[2];
const pkg = JSON.parse(fs.readFileSync(path.join(dir, 'package.json')));
const file = ['lib/addressparser/index.js', 'dist/cjs/addressparser/index.js'].find(f => fs.existsSync(path.join(dir, f)));
let parse = require(path.resolve(dir, file));
parse = parse.default || parse;
if (process.argv[3] === 'version') {
    console.log(pkg.version);
    process.exit();
}

// fieldsOf unfolds the From fields of a block, up to its empty line.
function fieldsOf(text) {
    const lines = [];
    for (const line of text.split(/\r?\n/)) {
        if (line === '') {
            break;
        }
        if (/^[ \t]/.test(line) && lines.length) {
            lines[lines.length - 1] += line;
        } else {
            lines.push(line);
        }
    }
    return lines.filter(l => /^from\s*:/i.test(l)).map(l => l.slice(l.indexOf(':') + 1));
}

readline.createInterface({ input: process.stdin }).on('line', line => {
    const answers = JSON.parse(line).map(text => {
        const found = fieldsOf(text).flatMap(value => parse(value, { flatten: true }));
        return found.map(a => a.address).filter(a => a.includes('@'));
    });
    process.stdout.write(JSON.stringify(answers) + '\n');
});
