import{j as o}from"./part-8da86fcfcb14fcda.js";var e=o(null);export{e as a};
