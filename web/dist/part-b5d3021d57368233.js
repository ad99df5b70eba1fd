import{j as o}from"./part-ec10cd2a5d4622d9.js";var e=o(null);export{e as a};
