import{j as o}from"./part-a65b044fe478345f.js";var e=o(null);export{e as a};
